"""Signals and the steps that wait for them.

The run keeps every signal until a wait takes it. One that needs several takes nothing before all
are there, so that those of a wait that times out, or is cancelled, are left for others. When a
signal comes, only the open waits for its name are asked, one for each place of the definition: all
of one place want the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core import failures, schemas
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import Definition, WaitMode, WaitSpec
from towpath_engine.core.effects import (
    ConsumeSignal,
    Decision,
    KeepSignal,
    RefuseSignal,
    Verdict,
    refused,
)
from towpath_engine.core.events import SignalReceived
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.kept import Kept
from towpath_engine.core.model import KeptSignal, Run, Step
from towpath_engine.core.paths import place_of, told_path
from towpath_engine.core.settling import complete_step, fail_step
from towpath_engine.core.states import WaitReason
from towpath_engine.core.transitions import RunChange, StepChange
from towpath_protocol.errors import ErrorCode
from towpath_protocol.times import format_instant

_PROBLEMS_TOLD: Final = 3


class Missing(Struct, frozen=True, kw_only=True):
    """What a wait has among the kept signals, and what it still lacks."""

    mode: WaitMode
    held: int
    """So many it would take."""
    count: int
    """So many more it needs."""
    names: tuple[str, ...]
    """Of these names: one of each for mode ALL, else whichever."""


def missing(run: Run, path: str) -> Missing:
    """What the wait at this path lacks as the run stands."""
    return _missing(run, place_of(path), Kept.of(run.kept))


# Waiting


def begin(changes: Changes, step: Step, spec: WaitSpec) -> None:
    """Take what is kept for the wait, or wait for it. What is kept and nobody wants is refused."""
    run = changes.run
    kept = Kept.of(run.kept)
    place = place_of(step.path)
    found = _find(run, place, kept)
    misfits = [one for one in found.misfits if not _is_wanted(changes, one)]
    for signal in misfits:
        reason = _why_refused(run, step.path, signal)
        changes.emit(RefuseSignal(signal=signal, path=step.path, reason=reason))
    changes.run = replace(run, kept=kept.without(misfits))
    facts: dict[str, object] = {} if not misfits else {"refused": len(misfits)}
    named = replace(step, signal=",".join(spec.signals))
    if found.is_complete:
        _take(changes, named, found.taken, facts=facts)
        return
    until = None if spec.timeout_ms is None else plus_ms(changes.now, spec.timeout_ms)
    facts |= {"for": WaitReason.SIGNAL.value, "signal": named.signal}
    if until is not None:
        facts["until"] = format_instant(until)
    if spec.mode is WaitMode.ALL:
        facts["count"] = len(spec.signals)
    elif spec.mode is WaitMode.COUNT:
        facts["count"] = spec.count
    waiting = replace(named, waiting_for=WaitReason.SIGNAL, wake_at=until)
    changes.move(waiting, StepChange.WAITING, facts)


def receive(changes: Changes, event: SignalReceived) -> Verdict | Decision:
    """Number the signal; the earliest wait that has all it needs with it takes it, else it is
    kept. One that is not what the open waits for its name want is refused."""
    run = changes.run
    size, size_max = len(event.signal.payload), run.limits.payload_bytes_max
    if size > size_max:
        return refused(
            run, ErrorCode.TOO_LARGE, f"the payload has {size} bytes, the limit is {size_max}"
        )
    signal = replace(event.signal, number=run.signal_count + 1)
    waits = _open_waits(changes, signal.name)
    fits = {place: _fits(run.definition, place, signal) for place in waits}
    if waits and not any(fits.values()):
        step = next(iter(waits.values()))
        return refused(run, ErrorCode.SCHEMA_FAILED, _why_refused(run, step.path, signal))
    kept = Kept.of(run.kept)
    taker = next(
        (
            step
            for place, step in waits.items()
            if fits[place] and _missing(run, place, kept, signal.name).count == 0
        ),
        None,
    )
    full = None if taker is not None else _why_full(run, kept, size)
    if full is not None:
        return refused(run, ErrorCode.SIGNALS_FULL, full)
    taken_by = None if taker is None else taker.path
    changes.run = replace(run, signal_count=signal.number, kept=kept.plus(signal, fits))
    changes.emit(KeepSignal(signal=signal, consumed_by=taken_by))
    changes.move_run(
        RunChange.SIGNALLED,
        {
            "signal": signal.name,
            "number": signal.number,
            "message_id": signal.message_id,
            "sent_by": signal.sent_by,
            "taken_by": taken_by,
        },
    )
    if taker is not None:
        found = _find(run, place_of(taker.path), Kept.of(changes.run.kept))
        assert signal in found.taken, "a wait that had all it needs was left open"
        _take(changes, taker, found.taken, facts={}, arrived=signal.number)
    return Verdict.APPLIED


def time_out(changes: Changes, step: Step) -> None:
    """Not all came. The step fails; with `on_timeout` the run goes on from there. What did come is
    still kept."""
    spec = _spec_of(changes.run.definition, place_of(step.path))
    failure = failures.timed_out("wait", spec.timeout_ms)
    fail_step(changes, step, failure, goes_on=spec.on_timeout_next)


def _take(
    changes: Changes,
    step: Step,
    taken: Sequence[KeptSignal],
    *,
    facts: dict[str, object],
    arrived: int = 0,
) -> None:
    """The wait is over: its signals are its output. The one that `arrived` just now was stored as
    consumed."""
    spec = _spec_of(changes.run.definition, place_of(step.path))
    changes.run = replace(changes.run, kept=Kept.of(changes.run.kept).without(taken))
    for signal in taken:
        if signal.number != arrived:
            changes.emit(ConsumeSignal(number=signal.number, consumed_by=step.path))
    if spec.mode is WaitMode.ANY:
        (signal,) = taken
        output = msgspec.json.encode(_told(signal))
        facts |= {"signal": signal.name, "number": signal.number}
    else:
        output = msgspec.json.encode([_told(signal) for signal in taken])
        facts |= {"signals": len(taken)}
        size_max = changes.run.limits.joined_output_bytes_max
        if len(output) > size_max:
            too_large = failures.too_large("the list of signals", len(output), size_max)
            fail_step(changes, step, too_large)
            return
    complete_step(changes, step, output, facts)


def _told(signal: KeptSignal) -> dict[str, object]:
    """The signal as expressions and readers see it."""
    return {
        "name": signal.name,
        "payload": msgspec.Raw(signal.payload),
        "sent_by": signal.sent_by,
        "received_at": format_instant(signal.received_at),
    }


# Who wants what


@lru_cache(maxsize=256)
def _places(definition: Definition) -> Mapping[str, tuple[str, ...]]:
    """The places of the waits for each name of a signal, in order of the document."""
    # Definitions are compared by identity, and the store keeps one object for each version.
    found: dict[str, tuple[str, ...]] = {}
    for place, step_def in definition.steps.items():
        if isinstance(step_def.spec, WaitSpec):
            for name in step_def.spec.signals:
                found[name] = (*found.get(name, ()), place)
    return found


def _open_waits(changes: Changes, name: str) -> Mapping[str, Step]:
    """By place, the step that has waited longest for this name; the earliest of all first."""
    found = (changes.first_wait(place) for place in _places(changes.run.definition).get(name, ()))
    waits = [step for step in found if step is not None]
    waits.sort(key=lambda step: (step.ready_at or changes.now, step.path))
    return {place_of(step.path): step for step in waits}


def _spec_of(definition: Definition, place: str) -> WaitSpec:
    spec = definition.steps[place].spec
    assert isinstance(spec, WaitSpec), "only a wait waits for a signal"
    return spec


def _fits(definition: Definition, place: str, signal: KeptSignal) -> bool:
    """Whether the payload is what the wait at this place wants."""
    return schemas.fits_payload(definition, place, signal.payload)


def _is_wanted(changes: Changes, signal: KeptSignal) -> bool:
    """Whether any open wait wants this kept signal."""
    definition = changes.run.definition
    return any(_fits(definition, place, signal) for place in _open_waits(changes, signal.name))


def _missing(run: Run, place: str, kept: Kept, arriving: str | None = None) -> Missing:
    """What the wait at this place lacks of what is kept, with one more of the name `arriving`,
    which fits."""
    definition = run.definition
    spec = _spec_of(definition, place)

    def count_of(name: str) -> int:
        more = int(name == arriving)
        if spec.schema is None:
            return kept.count_of(name) + more
        return more + kept.count_fitting(
            place, name, lambda signal: _fits(definition, place, signal)
        )

    if spec.mode is WaitMode.ALL:
        lacking = tuple(name for name in spec.signals if not count_of(name))
        held = len(spec.signals) - len(lacking)
        return Missing(mode=spec.mode, held=held, count=len(lacking), names=lacking)
    held = min(spec.count, sum(count_of(name) for name in spec.signals))
    return Missing(mode=spec.mode, held=held, count=spec.count - held, names=spec.signals)


class _Found(Struct, frozen=True, kw_only=True):
    """What a wait takes of what is kept, and what it came upon that it does not want."""

    taken: tuple[KeptSignal, ...]
    misfits: tuple[KeptSignal, ...]
    is_complete: bool


def _find(run: Run, place: str, kept: Kept) -> _Found:
    """The earliest signals that the wait needs. It looks no further once it has them."""
    spec = _spec_of(run.definition, place)
    taken: list[KeptSignal] = []
    misfits: list[KeptSignal] = []
    names: set[str] = set()
    need = len(spec.signals) if spec.mode is WaitMode.ALL else spec.count
    for signal in _named(spec, kept):
        if spec.mode is WaitMode.ALL and signal.name in names:
            continue
        if not _fits(run.definition, place, signal):
            misfits.append(signal)
            continue
        taken.append(signal)
        names.add(signal.name)
        if len(taken) == need:
            break
    return _Found(taken=tuple(taken), misfits=tuple(misfits), is_complete=len(taken) == need)


def _named(spec: WaitSpec, kept: Kept) -> Iterator[KeptSignal]:
    """The kept signals of the wait's names, in order of arrival."""
    names = {name for name in spec.signals if kept.count_of(name)}
    return (signal for signal in kept if signal.name in names) if names else iter(())


# Why not


def _why_refused(run: Run, path: str, signal: KeptSignal) -> str:
    found = schemas.validate_payload(run.definition, place_of(path), signal.payload)
    shown = "; ".join(found[:_PROBLEMS_TOLD])
    return f"the payload is not what step {told_path(path)!r} waits for: {shown}"


def _why_full(run: Run, kept: Kept, size: int) -> str | None:
    """Why the run can't keep one more signal of so many bytes, or None."""
    if len(kept) >= run.limits.signals_kept_max:
        return f"run {run.id} keeps {len(kept)} signals that no step has taken"
    bytes_max = run.limits.signals_kept_bytes_max
    if kept.size + size > bytes_max:
        return (
            f"run {run.id} keeps {kept.size} bytes of signals that no step has taken; "
            f"with {size} more it would have over {bytes_max}"
        )
    return None
