"""The workflow builder: Python calls that produce the document that `Client.deploy` takes.

It only produces the document. Whether it is a good one (names, targets, expressions, limits) is
judged by the engine alone, at deploy, so that every language sees the same refusals.

    order = workflow(
        "order",
        steps=[
            task("reserve", task="inventory.reserve", retry=retry(max_attempts=5)),
            wait("approval", signal="approved", timeout="24h", when="input.total > 1000"),
            task("ship", task="shipping.ship", queue="shipping"),
        ],
    )

Durations are texts (`"500ms"`, `"1h30m"`) or timedeltas. Conditions are bare CEL expressions;
elsewhere `"${ expr }"` in a text is one.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal, NotRequired, TypedDict, Unpack

from towpath_protocol.limits import WireLimits
from towpath_worker.values import Json, from_json, to_json

Step = dict[str, Json]
"""A step of a document."""
Template = object
"""Any JSON value; texts in it may hold `${ expr }`."""
Duration = str | timedelta
"""A text as in documents, or a timedelta of whole milliseconds."""

_DOCUMENT_BYTES_MAX: Final = WireLimits().definition_bytes_max
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


class StepOptions(TypedDict):
    """What every step may carry, whatever its kind.

    `when`: a condition, the step is skipped where it is false. `delay`: a durable wait before the
    step begins. `next`: the name of the step that follows, `end`: nothing follows. `limit`: the
    most visits. `after`: names of steps that must have settled before. `catch`: rows, see the
    function of that name. `compensate`: what undoes the step, see the function of that name.
    """

    when: NotRequired[str]
    delay: NotRequired[Duration]
    next: NotRequired[str]
    end: NotRequired[bool]
    limit: NotRequired[int]
    after: NotRequired[Sequence[str]]
    catch: NotRequired[Sequence[Mapping[str, Json]]]
    compensate: NotRequired[Mapping[str, Json]]


def workflow(  # noqa: PLR0913 -- one for each field of a document
    name: str,
    *,
    steps: Sequence[Step],
    input_schema: Mapping[str, object] | None = None,
    output: Template = None,
    timeout: Duration | None = None,
    on_failure: Literal["compensate", "fail"] | None = None,
    priority: Literal["critical", "high", "normal", "low"] | None = None,
    tags: Sequence[str] = (),
    retry: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """The document of a workflow.

    `input_schema` is the JSON Schema of a run's input, `output` a template (default: the output of
    the step that ended the run), `timeout` the deadline of a run, `retry` the default of all task
    steps and of what undoes them. `on_failure`: "compensate" (the default) undoes a run that
    failed, "fail" leaves it. Raises ValueError for a duration that cannot be written.
    """
    document = _given(
        workflow=name,
        input=input_schema,
        output=output,
        timeout=_duration(timeout),
        on_failure=on_failure,
        priority=priority,
        tags=list(tags) or None,
        retry=retry,
    )
    return {"expressions": "cel/1", **document, "steps": list(steps)}


def task(
    name: str,
    *,
    task: str,
    queue: str | None = None,
    input: Template = None,  # noqa: A002 -- the word of the document
    retry: Mapping[str, Json] | None = None,
    timeouts: Mapping[str, Json] | None = None,
    repeat: Mapping[str, Json] | None = None,
    **options: Unpack[StepOptions],
) -> Step:
    """A step that a worker runs: `task` is the name its code is registered under.

    `queue` default "default"; `input` default the run's input; for `retry`, `timeouts` and
    `repeat` see the functions of those names. Raises ValueError for a bad duration.
    """
    return _step(
        name,
        options,
        task=task,
        queue=queue,
        input=input,
        retry=retry,
        timeouts=timeouts,
        repeat=repeat,
    )


def pass_(name: str, value: Template, **options: Unpack[StepOptions]) -> Step:
    """A step whose output is `value`, a template. Raises ValueError for a bad duration."""
    return {**_step(name, options), "pass": _json(value)}


def choice(
    name: str,
    branches: Sequence[tuple[str, str]],
    *,
    default: str | None = None,
    when: str | None = None,
    delay: Duration | None = None,
    limit: int | None = None,
    catch: Sequence[Mapping[str, Json]] | None = None,
    compensate: Mapping[str, Json] | None = None,
) -> Step:
    """A step that goes to the first branch whose condition holds, else to `default`.

    `branches` are (condition, name of the next step). Without a match and a default the step fails
    with NoChoice. Raises ValueError for a bad duration.
    """
    rows: list[Json] = [{"when": condition, "next": target} for condition, target in branches]
    step = _given(name=name, choice=rows, default=default, when=when)
    return {
        **step,
        **_given(delay=_duration(delay), limit=limit, catch=_rows(catch), compensate=compensate),
    }


def wait(
    name: str,
    *,
    signal: str | None = None,
    any: Sequence[str] | None = None,  # noqa: A002 -- the word of the document
    all: Sequence[str] | None = None,  # noqa: A002 -- the same
    count: int | None = None,
    schema: Mapping[str, object] | bool | None = None,
    timeout: Duration | None = None,
    on_timeout: str | None = None,
    **options: Unpack[StepOptions],
) -> Step:
    """A step that waits for a signal, for `any` of several, or for one of `all` of them.

    Its output is `{"name", "payload", "sent_by", "received_at"}`; for `all`, and where it takes
    `count` signals, a list of these. `schema` is a JSON Schema of the payload. After `timeout` the
    run goes to the step `on_timeout`, or the step fails with Timeout. Raises ValueError unless
    exactly one of `signal`, `any` and `all` is given, and for a bad duration.
    """
    if sum(names is not None for names in (signal, any, all)) != 1:
        raise ValueError(f"wait {name!r}: give `signal`, `any` or `all`, one of the three")
    target: dict[str, Json] | None = None if on_timeout is None else {"next": on_timeout}
    awaited = _given(
        signal=signal,
        any=_listed(any),
        all=_listed(all),
        count=count,
        schema=schema,
        timeout=_duration(timeout),
        on_timeout=target,
    )
    return _step(name, options, wait=awaited)


def parallel(
    name: str,
    branches: Mapping[str, Sequence[Step]],
    *,
    on_error: Literal["fail_fast", "wait_all"] | None = None,
    **options: Unpack[StepOptions],
) -> Step:
    """A step whose branches, each a list of steps, run at once; its output is an object, branch →
    output of the branch's last step.

    `on_error`: "fail_fast" (the default) cancels the others when a branch fails, "wait_all" lets
    all settle. Raises ValueError for a bad duration.
    """
    lists = {branch: list(steps) for branch, steps in branches.items()}
    return _step(name, options, parallel=_given(on_error=on_error, branches=lists))


def map_(
    name: str,
    items: Template,
    steps: Sequence[Step],
    *,
    as_: str | None = None,
    max_concurrency: int | None = None,
    tolerate_count: int | None = None,
    tolerate_percent: float | None = None,
    **options: Unpack[StepOptions],
) -> Step:
    """A step that runs `steps` once for each item; its output is the list of their outputs.

    `items` is a template that gives a list, `as_` how expressions call the item (default "item").
    At most `max_concurrency` items (default 100) are worked on at once. So many failed ones are
    tolerated, by number or by share: a tolerated item's output is null. Raises ValueError when both
    are given, and for a bad duration.
    """
    if tolerate_count is not None and tolerate_percent is not None:
        raise ValueError(f"map {name!r}: tolerate failures by number or by share, not both")
    tolerate = _given(count=tolerate_count, percent=tolerate_percent)
    body = _given(
        items=items,
        max_concurrency=max_concurrency,
        tolerate=tolerate or None,
        steps=list(steps),
        **{"as": as_},
    )
    return _step(name, options, map=body)


def run(
    name: str,
    workflow: str,
    *,
    version: int | None = None,
    input: Template = None,  # noqa: A002 -- the word of the document
    key: str | None = None,
    detached: bool | None = None,
    **options: Unpack[StepOptions],
) -> Step:
    """A step that runs another workflow, a child; its output is the child's.

    `version` default the newest, `input` default the input of this run, `key` a template of the
    child's key. A `detached` child is started and not waited for: the output is `{"run_id"}`.
    Raises ValueError for a bad duration.
    """
    child = _given(workflow=workflow, version=version, input=input, key=key, detached=detached)
    return _step(name, options, run=child)


def sleep(
    name: str,
    duration: Duration | None = None,
    *,
    until: str | None = None,
    **options: Unpack[StepOptions],
) -> Step:
    """A step that waits for `duration`, or `until` an instant (RFC 3339, or a template of one).

    Raises ValueError unless exactly one of them is given, and for a bad duration.
    """
    if (duration is None) == (until is None):
        raise ValueError(f"sleep {name!r}: give a duration or `until`, one of the two")
    value: Json = _duration(duration) if until is None else {"until": until}
    return _step(name, options, sleep=value)


def retry(
    *,
    max_attempts: int | None = None,
    initial: Duration | None = None,
    factor: float | None = None,
    max: Duration | None = None,  # noqa: A002 -- the word of the document
    jitter: float | None = None,
    only: Sequence[str] | None = None,
    never: Sequence[str] | None = None,
    when: str | None = None,
) -> dict[str, Json]:
    """A retry policy: `max_attempts` counts the first; the n-th wait is initial * factor^(n-1),
    give or take the share `jitter`, at most `max`.

    `only` and `never` are error types; `when` is a condition over `error`. Raises ValueError for a
    bad duration.
    """
    backoff = _given(initial=_duration(initial), factor=factor, max=_duration(max), jitter=jitter)
    return _given(
        max_attempts=max_attempts,
        backoff=backoff or None,
        only=None if only is None else list(only),
        never=None if never is None else list(never),
        when=when,
    )


def timeouts(
    *,
    attempt: Duration | None = None,
    dispatch: Duration | None = None,
    step: Duration | None = None,
    heartbeat: Duration | None = None,
) -> dict[str, Json]:
    """Timeouts of a task step: `attempt` start → outcome, `dispatch` dispatch → start, `step` all
    attempts and waits, `heartbeat` between heartbeats. Raises ValueError for a bad duration."""
    return _given(
        attempt=_duration(attempt),
        dispatch=_duration(dispatch),
        step=_duration(step),
        heartbeat=_duration(heartbeat),
    )


def repeat(
    *, delay: Duration | None = None, limit: int | None = None, while_: str | None = None
) -> dict[str, Json]:
    """How a task step goes on when its worker answers `Again`, or where `while_`, a condition over
    `output`, `iteration` and `last`, holds: the wait, and the most iterations.

    Raises ValueError for a bad duration.
    """
    return _given(delay=_duration(delay), limit=limit, **{"while": while_})


def catch(
    next: str,  # noqa: A002 -- the word of the document
    *,
    errors: Sequence[str] | None = None,
    when: str | None = None,
) -> dict[str, Json]:
    """A row of `catch`: when the step fails with one of these error types (default: any), and
    `when`, a condition over `error`, holds, the list goes on at the step `next`."""
    return _given(errors=_listed(errors), when=when, next=next)


def compensate(
    task: str,
    *,
    queue: str | None = None,
    input: Template = None,  # noqa: A002 -- the word of the document
    retry: Mapping[str, Json] | None = None,
    timeouts: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """What undoes a completed step: a task, whose `input` may use `output` and `error`.

    `queue` default that of the step's own task; `input` default the step's output.
    """
    return _given(task=task, queue=queue, input=input, retry=retry, timeouts=timeouts)


def _step(name: str, options: StepOptions, **fields: object) -> Step:
    common = _given(
        when=options.get("when"),
        delay=_duration(options.get("delay")),
        next=options.get("next"),
        end=options.get("end"),
        limit=options.get("limit"),
        after=_listed(options.get("after")),
        catch=_rows(options.get("catch")),
        compensate=options.get("compensate"),
    )
    return {"name": name, **_given(**fields), **common}


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


def _rows(rows: Sequence[Mapping[str, Json]] | None) -> list[Mapping[str, Json]] | None:
    return None if rows is None else list(rows)


def _given(**fields: object) -> dict[str, Json]:
    """What was given, as JSON; a document says nothing about the rest."""
    return {name: _json(value) for name, value in fields.items() if value is not None}


def _json(value: object) -> Json:
    """The value as JSON. Raises InvalidValueError when it is none."""
    return from_json(to_json(value, bytes_max=_DOCUMENT_BYTES_MAX, field="document"))


def _duration(value: Duration | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    total_ms, rest = divmod(value, timedelta(milliseconds=1))
    if rest or total_ms <= 0:
        raise ValueError(f"{value!r} is no duration of whole milliseconds, longer than zero")
    text = ""
    for unit, size_ms in _UNITS:
        count, total_ms = divmod(total_ms, size_ms)
        text += f"{count}{unit}" if count else ""
    return text
