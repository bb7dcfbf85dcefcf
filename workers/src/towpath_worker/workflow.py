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
    most visits.
    """

    when: NotRequired[str]
    delay: NotRequired[Duration]
    next: NotRequired[str]
    end: NotRequired[bool]
    limit: NotRequired[int]


def workflow(
    name: str,
    *,
    steps: Sequence[Step],
    input_schema: Mapping[str, object] | None = None,
    output: Template = None,
    timeout: Duration | None = None,
    priority: Literal["critical", "high", "normal", "low"] | None = None,
    tags: Sequence[str] = (),
    retry: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """The document of a workflow.

    `input_schema` is the JSON Schema of a run's input, `output` a template (default: the output of
    the step that ended the run), `timeout` the deadline of a run, `retry` the default of all task
    steps. Raises ValueError for a duration that cannot be written.
    """
    document = _given(
        workflow=name,
        input=input_schema,
        output=output,
        timeout=_duration(timeout),
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
) -> Step:
    """A step that goes to the first branch whose condition holds, else to `default`.

    `branches` are (condition, name of the next step). Without a match and a default the step fails
    with NoChoice. Raises ValueError for a bad duration.
    """
    rows: list[Json] = [{"when": condition, "next": target} for condition, target in branches]
    step = _given(name=name, choice=rows, default=default, when=when)
    return {**step, **_given(delay=_duration(delay), limit=limit)}


def wait(
    name: str,
    *,
    signal: str,
    timeout: Duration | None = None,
    on_timeout: str | None = None,
    **options: Unpack[StepOptions],
) -> Step:
    """A step that waits for a signal; its output is `{"name", "payload", "sent_by",
    "received_at"}`.

    After `timeout` the run goes to the step `on_timeout`, or the step fails with Timeout. Raises
    ValueError for a bad duration.
    """
    target: dict[str, Json] | None = None if on_timeout is None else {"next": on_timeout}
    awaited = _given(signal=signal, timeout=_duration(timeout), on_timeout=target)
    return _step(name, options, wait=awaited)


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


def repeat(*, delay: Duration | None = None, limit: int | None = None) -> dict[str, Json]:
    """How a task step goes on when its worker answers `Again`: the wait, and the most iterations.

    Raises ValueError for a bad duration.
    """
    return _given(delay=_duration(delay), limit=limit)


def _step(name: str, options: StepOptions, **fields: object) -> Step:
    common = _given(
        when=options.get("when"),
        delay=_duration(options.get("delay")),
        next=options.get("next"),
        end=options.get("end"),
        limit=options.get("limit"),
    )
    return {"name": name, **_given(**fields), **common}


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
