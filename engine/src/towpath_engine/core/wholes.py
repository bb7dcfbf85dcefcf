"""Parallel and map: their parts begin, end and are joined.

A whole counts its parts (`Step.parts`), so that one that settles costs the same however many there
are. Only the join looks at them all, once.
"""

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from towpath_engine.core import agenda, failures
from towpath_engine.core.agenda import Verb
from towpath_engine.core.changes import Changes, StepsNeeded
from towpath_engine.core.definition import MapSpec, ParallelSpec
from towpath_engine.core.dropping import closed, drop_below
from towpath_engine.core.expressions.interface import unusable
from towpath_engine.core.forgetting import part_paths
from towpath_engine.core.model import Failure, Parts, Step
from towpath_engine.core.paths import (
    index_of_item,
    item_path,
    name_of,
    parts_path,
    place_of,
    told_path,
    upper_of,
    within,
)
from towpath_engine.core.scope import Scope
from towpath_engine.core.settling import complete_step, fail_step, last_output
from towpath_engine.core.states import StepKind, StepStatus
from towpath_engine.core.transitions import StepChange

_SHORT_BYTES: Final = 64 * 1024
_SHORT_CACHED: Final = 128
_LONG_CACHED: Final = 8
_raws: Final = msgspec.json.Decoder(list[Raw])


def _items_of(text: bytes) -> tuple[Raw, ...]:
    """The items of a map, each as it stands in the list. Raises DecodeError for anything else.

    The lists of the maps that go on at the same time are remembered: else each part that begins
    would cost as much as there are items.
    """
    return _short_list(text) if len(text) <= _SHORT_BYTES else _long_list(text)


@lru_cache(maxsize=_SHORT_CACHED)
def _short_list(text: bytes) -> tuple[Raw, ...]:
    return tuple(_raws.decode(text))


@lru_cache(maxsize=_LONG_CACHED)
def _long_list(text: bytes) -> tuple[Raw, ...]:
    return tuple(_raws.decode(text))


# Beginning


def begin_parallel(changes: Changes, step: Step, spec: ParallelSpec) -> None:
    """All branches are started, in the order of the definition."""
    _begin(changes, step, len(spec.branches))


def begin_map(changes: Changes, step: Step, spec: MapSpec) -> None:
    """The items are evaluated once, and the first of them are started. Raises ExpressionFailed for
    items that are no list."""
    text = step.input or spec.items.render(Scope(changes, step))
    size_max = changes.run.limits.joined_output_bytes_max
    if len(text) > size_max:
        fail_step(changes, step, failures.too_large("the list of items", len(text), size_max))
        return
    try:
        items = _items_of(text)
    except msgspec.DecodeError as error:
        field = f"steps.{place_of(step.path)}.map.items"
        raise unusable(text, field, "the value is no list") from error
    _begin(changes, replace(step, input=text), len(items))


def _begin(changes: Changes, step: Step, total: int) -> None:
    begun = replace(step, parts=Parts(total=total), errors=None, started_at=changes.now)
    changes.move(begun, StepChange.STARTED, {"parts": total})
    agenda.push(changes, Verb.START, step.path)


def start_next(changes: Changes, path: str) -> None:
    """Start the next part of the whole if one more may be open; join the parts when all are done.

    The next one after that stands on the agenda below what the started one has to do, so that parts
    which end at once follow each other.
    """
    whole = changes.step(path)
    if whole is None or whole.parts is None or not changes.is_owner_open(path):
        return
    parts = whole.parts
    if parts.started < parts.total:
        if parts.open < _open_max(changes, whole):
            _start(changes, whole, parts)
    elif parts.open == 0:
        _join(changes, whole)


def _open_max(changes: Changes, whole: Step) -> int:
    spec = changes.definition_of(whole.path).spec
    return (
        spec.max_concurrency
        if isinstance(spec, MapSpec)
        else changes.run.limits.open_steps_per_run_max
    )


def _start(changes: Changes, whole: Step, parts: Parts) -> None:
    """Start the next part and its list."""
    spec = changes.definition_of(whole.path).spec
    begin = parts_path(whole.path, whole.visit)
    index = parts.started
    if isinstance(spec, ParallelSpec):
        kind, value = StepKind.BRANCH, None
        path = within(begin, spec.branches[index])
    else:
        assert whole.input is not None, f"map {whole.path} has no items"
        kind, value = StepKind.ITEM, bytes(_items_of(whole.input)[index])
        path = item_path(begin, index)
    counted = replace(parts, started=parts.started + 1, open=parts.open + 1)
    changes.put(replace(whole, parts=counted))
    part = Step(
        path=path,
        kind=kind,
        revival_count=changes.run.revival_count,
        input=value,
        ready_at=changes.now,
        started_at=changes.now,
    )
    changes.move(part, StepChange.STARTED)
    agenda.push(changes, Verb.START, whole.path)
    agenda.begin_list(changes, path)


# Ending


def complete_part(changes: Changes, part: Step) -> None:
    """The list of the part came to its end: its last output is that of the part."""
    output = last_output(changes, part.path)
    changes.move(replace(closed(changes, part), output=output, error=None), StepChange.COMPLETED)
    agenda.leave_below(changes, part.path)
    whole = changes.need(upper_of(part.path))
    assert whole.parts is not None, f"{whole.path} has no parts"
    size = whole.parts.size + len(output)
    counted = replace(whole.parts, open=whole.parts.open - 1, size=size)
    whole = replace(whole, parts=counted)
    changes.put(whole)
    size_max = changes.run.limits.joined_output_bytes_max
    if size > size_max:
        _fail_whole(changes, whole, failures.too_large("the joined output", size, size_max))
    else:
        agenda.push(changes, Verb.START, whole.path)


def fail_part(changes: Changes, part: Step, failure: Failure) -> None:
    """The list of the part has failed, so the part has; and its whole, if it takes no more."""
    changes.move(
        replace(closed(changes, part), output=None, error=failure),
        StepChange.FAILED,
        failures.to_facts(failure),
    )
    agenda.leave_below(changes, part.path)
    whole = changes.need(upper_of(part.path))
    assert whole.parts is not None, f"{whole.path} has no parts"
    failed = whole.parts.failed + 1
    counted = replace(whole.parts, open=whole.parts.open - 1, failed=failed)
    # The first failure in the order of commit is that of the whole, if it fails.
    whole = replace(whole, parts=counted, error=whole.error or failure)
    changes.put(whole)
    if failed > _tolerated(changes, whole, counted):
        _fail_whole(changes, whole, whole.error or failure)
    else:
        agenda.push(changes, Verb.START, whole.path)
    agenda.push(changes, Verb.DROP, part.path)


def _tolerated(changes: Changes, whole: Step, parts: Parts) -> int:
    """How many parts may fail before the whole fails at once."""
    spec = changes.definition_of(whole.path).spec
    if isinstance(spec, ParallelSpec):
        return parts.total if spec.wait_all else 0
    assert isinstance(spec, MapSpec), f"{whole.path} is no whole"
    if spec.tolerate_percent is None:
        return spec.tolerate_count
    return int(parts.total * spec.tolerate_percent / 100)


def _fail_whole(changes: Changes, whole: Step, failure: Failure) -> None:
    """The whole fails: what is open below it is cancelled before anybody goes on."""
    failed = replace(whole, errors=_errors(changes, _failed_parts(changes, whole), 0))
    fail_step(changes, failed, failure)
    agenda.push(changes, Verb.DROP, whole.path)


def drop(changes: Changes, path: str) -> None:
    """Cancel what is open below a row that has failed."""
    if not drop_below(changes, path, f"{told_path(path)} failed"):
        agenda.push(changes, Verb.DROP, path)


# Joining


def _join(changes: Changes, whole: Step) -> None:
    """All parts have settled: their outputs are that of the whole, if it has not failed."""
    parts = whole.parts
    assert parts is not None, f"{whole.path} has no parts"
    spec = changes.definition_of(whole.path).spec
    if isinstance(spec, ParallelSpec) and parts.failed:
        assert whole.error is not None, f"a branch of {whole.path} has failed without an error"
        fail_step(
            changes,
            replace(whole, errors=_errors(changes, _failed_parts(changes, whole), 0)),
            whole.error,
        )
        return
    rows = all_parts(changes, whole)
    outputs = [Raw(row.output or b"null") for row in rows]
    if isinstance(spec, ParallelSpec):
        named = dict(zip(spec.branches, outputs, strict=True))
        output = msgspec.json.encode(named)
    else:
        output = msgspec.json.encode(outputs)
    size_max = changes.run.limits.joined_output_bytes_max
    if len(output) > size_max:
        too_large = failures.too_large("the joined output", len(output), size_max)
        _fail_whole(changes, whole, too_large)
        return
    failed = [row for row in rows if row.status is StepStatus.FAILED]
    errors = _errors(changes, failed, len(output)) if failed else None
    facts = {"failed": parts.failed} if parts.failed else None
    complete_step(changes, replace(whole, errors=errors), output, facts)


def all_parts(changes: Changes, whole: Step) -> list[Step]:
    """The rows of all parts that were started, in order. Raises StepsNeeded when some are not
    loaded."""
    found = [changes.step(path) for path in part_paths(changes.run, whole)]
    rows = [row for row in found if row is not None]
    if len(rows) < len(found):
        raise StepsNeeded(parts_of=(parts_path(whole.path, whole.visit),))
    return rows


def _failed_parts(changes: Changes, whole: Step) -> list[Step]:
    """The rows of the parts that have failed, but for those that a retry is about to revive. Raises
    StepsNeeded when some are not loaded."""
    parts = whole.parts
    if parts is None or parts.failed == 0:
        return []
    revival = changes.run.revival_count
    found = [changes.step(path) for path in part_paths(changes.run, whole)]
    failed = [
        row
        for row in found
        if row is not None and row.status is StepStatus.FAILED and row.revival_count == revival
    ]
    if len(failed) < parts.failed:
        raise StepsNeeded(parts_of=(parts_path(whole.path, whole.visit),))
    return failed


def _errors(changes: Changes, failed: list[Step], output_size: int) -> bytes | None:
    """The errors of failed parts by branch or index, in what the outputs have left of the limit."""
    if not failed:
        return None
    limits = changes.run.limits
    # Of the braces, one more than there are commas too many below.
    room = limits.joined_output_bytes_max - output_size - 1
    each_max = min(limits.error_bytes_max, room // len(failed) // 2)
    errors: dict[str, object] = {}
    for part in failed:
        is_item = part.kind is StepKind.ITEM
        key = str(index_of_item(part.path)) if is_item else name_of(part.path)
        assert part.error is not None, f"{part.path} has failed without an error"
        value = failures.to_value(failures.bounded(part.error, each_max))
        # What is left of an error is a little larger than its text.
        room -= len(msgspec.json.encode(value)) + len(key) + 4
        if room < 0:
            break
        errors[key] = value
    return msgspec.json.encode(errors)
