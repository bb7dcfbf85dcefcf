"""What a step is to do, in lines: its kind with what belongs to it, and what else it says."""

from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

from towpath_engine.core import paths
from towpath_engine.core.definition import (
    ChoiceSpec,
    MapSpec,
    ParallelSpec,
    PassSpec,
    RunSpec,
    SleepSpec,
    StepDef,
    TaskSpec,
    WaitMode,
    WaitSpec,
)
from towpath_engine.core.fields import is_list, is_object
from towpath_engine.drawing.words import cut, duration
from towpath_protocol.codec import JsonValue


def details_of(step: StepDef, document: bytes) -> tuple[str, ...]:
    """The lines of a step. The document has the text of templates, which are compiled here."""
    return tuple(cut(line) for line in _lines(step, document))


def _lines(step: StepDef, document: bytes) -> Iterator[str]:
    yield from _of_kind(step, _texts(document).get(step.path, ""))
    if step.when is not None:
        yield f"when {step.when.source}"
    if step.delay_ms is not None:
        yield f"delay {duration(step.delay_ms)}"
    if step.limit is not None:
        yield f"at most {step.limit:,} visits"
    if step.compensate is not None:
        yield f"↶ undo {step.compensate.task}"
    if step.end and step.following is not None:
        yield "ends here"


def _of_kind(step: StepDef, template: str) -> Iterator[str]:
    match step.spec:
        case TaskSpec() as spec:
            yield from _task(spec)
        case WaitSpec() as spec:
            yield from _wait(spec)
        case SleepSpec(duration_ms=int(ms)):
            yield f"sleep {duration(ms)}"
        case SleepSpec():
            yield f"sleep until {template}".rstrip()
        case ParallelSpec(wait_all=wait_all):
            yield "parallel, waits for all" if wait_all else "parallel"
        case MapSpec() as spec:
            yield from _map(spec, template)
        case RunSpec() as spec:
            version = "" if spec.version is None else f" version {spec.version}"
            detached = ", detached" if spec.detached else ""
            yield f"run {spec.workflow}{version}{detached}"
        case ChoiceSpec():
            yield "choice"
        case PassSpec():
            yield "pass"


def _task(spec: TaskSpec) -> Iterator[str]:
    yield f"task {spec.task}"
    if spec.queue != "default":
        yield f"queue {spec.queue}"
    if spec.retry.max_attempts > 1:
        yield f"up to {spec.retry.max_attempts:,} attempts"
    if spec.repeat is not None:
        condition = spec.repeat.again_while
        when = "" if condition is None else f" while {condition.source}"
        yield f"repeat{when}"
        every = f"every {duration(spec.repeat.delay_ms)}, " if spec.repeat.delay_ms else ""
        yield f"{every}at most {spec.repeat.limit:,} times"


def _wait(spec: WaitSpec) -> Iterator[str]:
    names = ", ".join(spec.signals[:8])
    match spec.mode:
        case WaitMode.ALL:
            yield f"wait for all of {names}"
        case WaitMode.COUNT:
            yield f"wait for {spec.count:,} of {names}"
        case WaitMode.ANY if len(spec.signals) > 1:
            yield f"wait for any of {names}"
        case WaitMode.ANY:
            yield f"wait for {names}"
    if spec.timeout_ms is not None and spec.on_timeout_next is None:
        yield f"fails after {duration(spec.timeout_ms)}"


def _map(spec: MapSpec, template: str) -> Iterator[str]:
    yield f"map {spec.as_name} of {template}" if template else f"map, each as {spec.as_name}"
    yield f"{spec.max_concurrency:,} at a time"
    if spec.tolerate_percent is not None:
        yield f"tolerates {spec.tolerate_percent:g} % failed"
    elif spec.tolerate_count:
        yield f"tolerates {spec.tolerate_count:,} failed"


@lru_cache(maxsize=4)
def _texts(document: bytes) -> Mapping[str, str]:
    """By place: the text of the items of a map, or of the instant of a sleep."""
    try:
        whole = msgspec.json.decode(document)
    except msgspec.MsgspecError:
        return {}
    found: dict[str, str] = {}
    lists: list[tuple[str, JsonValue]] = [("", _get(whole, "steps"))]
    while lists:
        owner, steps = lists.pop()
        for step in steps if is_list(steps) else ():
            place = paths.within(owner, str(_get(step, "name")))
            until = _get(_get(step, "sleep"), "until") or _get(step, "until")
            text = _get(_get(step, "map"), "items") or until
            if isinstance(text, str):
                found[place] = text
            lists.append((place, _get(_get(step, "map"), "steps")))
            branches = _get(_get(step, "parallel"), "branches")
            if is_object(branches):
                lists.extend((paths.within(place, name), inner) for name, inner in branches.items())
    return found


def _get(value: JsonValue, name: str) -> JsonValue:
    return value.get(name) if is_object(value) else None
