"""Signals and the steps that wait for them."""

from typing import Any

import msgspec
from msgspec.structs import replace

from towpath_engine.core import failures
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import WaitSpec
from towpath_engine.core.effects import ConsumeSignal, Decision, KeepSignal, Verdict, refused
from towpath_engine.core.events import SignalReceived
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.model import KeptSignal, Run, Step
from towpath_engine.core.settling import complete_step, fail_step
from towpath_engine.core.states import WaitReason
from towpath_engine.core.transitions import RunChange, StepChange
from towpath_protocol.errors import ErrorCode
from towpath_protocol.times import format_instant


def begin(changes: Changes, step: Step, spec: WaitSpec) -> None:
    """Take the earliest kept signal of the wait's names, or wait for one."""
    kept = next((signal for signal in changes.run.kept if signal.name in spec.signals), None)
    named = replace(step, signal=",".join(spec.signals))
    if kept is None:
        until = None if spec.timeout_ms is None else plus_ms(changes.now, spec.timeout_ms)
        facts: dict[str, Any] = {"for": WaitReason.SIGNAL.value}
        if until is not None:
            facts["until"] = format_instant(until)
        facts["signal"] = named.signal
        waiting = replace(named, waiting_for=WaitReason.SIGNAL, wake_at=until)
        changes.move(waiting, StepChange.WAITING, facts)
        return
    others = tuple(signal for signal in changes.run.kept if signal.number != kept.number)
    changes.run = replace(changes.run, kept=others)
    changes.emit(ConsumeSignal(number=kept.number, consumed_by=step.path))
    _take(changes, named, kept)


def receive(changes: Changes, event: SignalReceived) -> Verdict | Decision:
    """Number the signal; a wait for its name takes it, else it is kept."""
    run = changes.run
    size, size_max = len(event.signal.payload), run.limits.payload_bytes_max
    if size > size_max:
        return refused(
            run, ErrorCode.TOO_LARGE, f"the payload has {size} bytes, the limit is {size_max}"
        )
    waiting = next(iter(changes.waits(event.signal.name)), None)
    full = None if waiting is not None else _why_full(run, size)
    if full is not None:
        return refused(run, ErrorCode.SIGNALS_FULL, full)
    signal = replace(event.signal, number=run.signal_count + 1)
    kept = run.kept if waiting is not None else (*run.kept, signal)
    changes.run = replace(run, signal_count=signal.number, kept=kept)
    taken_by = None if waiting is None else waiting.path
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
    if waiting is not None:
        _take(changes, waiting, signal)
    return Verdict.APPLIED


def _take(changes: Changes, step: Step, signal: KeptSignal) -> None:
    """The wait is over: the signal is its output."""
    output = {
        "name": signal.name,
        "payload": msgspec.Raw(signal.payload),
        "sent_by": signal.sent_by,
        "received_at": format_instant(signal.received_at),
    }
    facts = {"signal": signal.name, "number": signal.number}
    complete_step(changes, step, msgspec.json.encode(output), facts)


def _why_full(run: Run, size: int) -> str | None:
    """Why the run can't keep one more signal of so many bytes, or None."""
    if len(run.kept) >= run.limits.signals_kept_max:
        return f"run {run.id} keeps {len(run.kept)} signals that no step has taken"
    kept_bytes = sum(len(signal.payload) for signal in run.kept)
    bytes_max = run.limits.signals_kept_bytes_max
    if kept_bytes + size > bytes_max:
        return (
            f"run {run.id} keeps {kept_bytes} bytes of signals that no step has taken; "
            f"with {size} more it would have over {bytes_max}"
        )
    return None


def time_out(changes: Changes, step: Step) -> None:
    """No signal came. The step fails; with `on_timeout` the run goes on from there."""
    spec = changes.definition_of(step.path).spec
    assert isinstance(spec, WaitSpec), "only a wait waits for a signal"
    failure = failures.timed_out("wait", spec.timeout_ms)
    fail_step(changes, step, failure, goes_on=spec.on_timeout_next)
