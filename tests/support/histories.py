"""Made-up histories: anything may happen to a run, in any order.

A list of numbers says what happens next; so a history can be shrunk like any list. After the
numbers the world is calm: everything is delivered once, in order, until the run has settled.
"""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from tests.support.builders import BEGIN, a_cause
from tests.support.drawn_definitions import SIGNALS, definitions
from tests.support.invariants import OUTLIVES, PLAIN_WAITS, is_split, live_tokens
from tests.support.tallies import Tally
from tests.support.worlds import Servers
from towpath_engine.core.effects import Decision, DispatchStep
from towpath_engine.core.events import (
    AttemptLost,
    CancelRequested,
    DispatchDelivered,
    DispatchVanished,
    DispatchWithdrawn,
    PauseRequested,
    RedriveRequested,
    ResumeRequested,
    RetryRequested,
    StepAdmitted,
)
from towpath_engine.core.explain import reasons_of
from towpath_engine.core.gate import OPEN, Gate
from towpath_engine.core.states import SETTLED_RUN, RunStatus, StepStatus, WaitReason

__all__ = ["Tally", "World", "definitions"]

CALM_STEPS_MAX: Final = 5_000
"""No generated run needs as many; one that does is not coming to its end."""
NOTHING_HELD: Final = "-"
"""No path: nothing is held back."""
_GATES: Final = (
    OPEN,
    OPEN,
    Gate(paused=frozenset({"queue:default"})),
    Gate(paused=frozenset({"workflow:random"}), full={"default": 0}),
    Gate(full={"default": 2}),
    Gate(paused=frozenset({"task:work"}), full={"default": 3, "other": 0}),
    Gate(paused=frozenset({"task:undo"})),
)
"""What can be closed in a history."""


class World(Servers):
    """Servers to which anything may happen."""

    signals_sent = 0

    def act(self, number: int) -> None:
        """One thing happens; `number` says which."""
        # Spread evenly: Hypothesis likes small numbers, and a world of small numbers is dull.
        digest = hashlib.blake2b(f"{self.happened}/{number}".encode(), digest_size=4).digest()
        which, detail = digest[0] % 23, int.from_bytes(digest[1:], "big")
        if detail % 3 == 0 and not self.harmless and self._tokens_of_the_end():
            self._see_to_the_end(detail // 3)
            return
        acts: tuple[tuple[range, Callable[[int], object]], ...] = (
            (range(4), self._act_on_stream),
            (range(4, 8), self._act_on_reports),
            (range(8, 9), self._replay),
            (range(9, 11), self._act_on_time),
            (range(11, 12), self._lose),
            (range(12, 13), self._see_delivery),
            (range(13, 14), self._signal),
            (range(14, 16), lambda _: self.continues()),
            (range(16, 17), self._act_on_children),
            (range(17, 18), self._meddle),
            (range(18, 19), self._meddle if self.run.status in SETTLED_RUN else self._hold),
            (range(19, 20), self._hold),
            (range(20, 21), self._see_to_what_is_cancelled),
            (range(21, 23), self._act_on_time),
        )
        next(act for numbers, act in acts if which in numbers)(detail)

    # Messages

    def _act_on_reports(self, detail: int) -> None:
        if self.reports_sent:
            self.deliver(detail, twice=detail % 9 == 0)

    def _act_on_stream(self, detail: int) -> None:
        if self.stream:
            dispatch = self.stream[detail % len(self.stream)]
            if detail % 5 == 4:
                # A redelivery: the same dispatch is worked on twice.
                self.stream.append(dispatch)
            self.work(dispatch, detail)

    def _replay(self, detail: int) -> None:
        if self.seen:
            self.happens(self.seen[detail % len(self.seen)])
        if detail % 4 == 0:
            self.begins()

    def _act_on_children(self, detail: int) -> None:
        """A child settles: one that was cancelled, one that is awaited, one that nobody knows."""
        if self.children_cancelled and detail % 3 == 0:
            self.settles(self.children_cancelled.pop(0), cancelled=True)
        elif self.children:
            children = sorted(self.children)
            self.settles(children[detail % len(children)])
        elif not self.harmless:
            self.settles("0190a0a0-0000-7000-8000-00000000beef")

    def _lose(self, detail: int) -> None:
        """A dispatch is lost: the engine finds it in the stream no more, or the broker gives it up;
        now and then one that a worker has, and often one whose attempt is to be undone."""
        tokens = sorted({dispatch.token for dispatch in self.stream})
        if not self.harmless and detail % 3 == 0:
            tokens = self._tokens_of_the_end() or sorted(live_tokens(self.run))
        if not tokens:
            return
        token = tokens[detail // 3 % len(tokens)]
        if detail % 2 or self.harmless:
            self.stream = [one for one in self.stream if one.token != token]
            self.vanished(token)
            return
        self._is_given_up(token)

    def _is_given_up(self, token: str) -> None:
        """The broker has delivered the dispatch too often."""
        cause = a_cause("lost", token=token)
        event = AttemptLost(seed=self.seed(), cause=cause, token=token, reason="5 deliveries")
        self.seen.append(event)
        self.happens(event)

    def _see_to_the_end(self, detail: int) -> None:
        """Something happens to an attempt that is being cancelled or that undoes: these are few,
        and most that can go wrong with them is rare."""
        tokens = self._tokens_of_the_end()
        token = tokens[detail % len(tokens)]
        row = self.row_of_token(token)
        assert row is not None, "it was found among the rows"
        match detail // 3 % 8:
            case 0:
                self._is_given_up(token)
            case 1:
                self.stream = [one for one in self.stream if one.token != token]
                self.vanished(token)
            case 2:
                self.withdraws(token)
            case 3:
                self._is_delivered(token)
            case 4 if row.due_at is not None:
                self.time_passes_until_due(row.path)
            case _:
                self.reports_at_once(row, detail // 24)

    def _tokens_of_the_end(self) -> list[str]:
        """The tokens of the attempts that are being cancelled or that undo."""
        steps = (self.run.steps[path] for path in sorted(self.run.steps))
        return [s.token for s in steps if s.token is not None and s.status in OUTLIVES]

    def vanished(self, token: str) -> None:
        """The engine finds the dispatch in the stream no more."""
        cause = a_cause("lost", token=token)
        event = DispatchVanished(seed=self.seed(), cause=cause, token=token)
        self.seen.append(event)
        self.happens(event)

    def _see_delivery(self, detail: int) -> None:
        tokens = sorted(live_tokens(self.run)) or self.tokens_ever
        if tokens:
            token = tokens[detail % len(tokens)]
            self._is_delivered(token)
            if detail % 3 == 0:
                # And then the stream was wiped.
                self.vanished(token)

    def _is_delivered(self, token: str) -> None:
        cause = a_cause("delivered", token=token)
        self.happens(DispatchDelivered(seed=self.seed(), cause=cause, token=token))

    def _see_to_what_is_cancelled(self, detail: int) -> None:
        """A dispatch that nobody has had yet is withdrawn, if its attempt is being cancelled."""
        found = [d for d in self.stream if self._is_cancelling(d)]
        if found:
            self.withdraws(found[detail % len(found)].token)
        elif self.tokens_ever and detail % 4 == 0:
            # Its attempt is not being cancelled, or is over: nobody wants it withdrawn any more.
            live = sorted(live_tokens(self.run)) if detail % 3 else []
            tokens = live or self.tokens_ever
            token = tokens[detail % len(tokens)]
            cause = a_cause("withdrawn", token=token)
            self.happens(DispatchWithdrawn(seed=self.seed(), cause=cause, token=token))

    def withdraws(self, token: str) -> None:
        """The engine takes the dispatch out of the stream."""
        self.stream = [one for one in self.stream if one.token != token]
        cause = a_cause("withdrawn", token=token)
        event = DispatchWithdrawn(seed=self.seed(), cause=cause, token=token)
        self.seen.append(event)
        self.happens(event)

    def _is_cancelling(self, dispatch: DispatchStep) -> bool:
        step = self.row_of_token(dispatch.token)
        return step is not None and step.status is StepStatus.CANCELLING and step.started_at is None

    def _signal(self, detail: int) -> None:
        if not self.harmless or self.signals_sent < len(SIGNALS) * 40:
            self._send_signal(detail)

    def _send_signal(self, detail: int) -> None:
        """One signal of each name in turn: which of them a wait takes does not depend on when they
        come. Without harm they hold all the same."""
        name = SIGNALS[self.signals_sent % len(SIGNALS)]
        self.signals_sent += 1
        if self.harmless:
            self.is_signalled(name, "same", at=BEGIN)
        else:
            self.is_signalled(name, detail % 12)

    # Time

    def _act_on_time(self, detail: int) -> None:
        paths = [None, *sorted(self.run.steps), *sorted(self.run.steps)]
        path = paths[detail % len(paths)] if detail % 4 else None
        if self.harmless:
            self._pass_time()
        elif detail % 3 == 0:
            # Short jumps meet waits and timeouts in order, long ones find several due at once.
            self.now += timedelta(seconds=detail % 120 if detail % 2 else detail % 12)
        elif detail % 3 == 1 and path is not None and self.run.steps[path].due_at is not None:
            self.time_passes_until_due(path)
            return
        self.timer_fires(path)

    def _pass_time(self) -> None:
        """Time goes on as far as it may without a timeout: to the end of a plain wait."""
        waits = [s.wake_at for s in self.run.steps.values() if s.waiting_for in PLAIN_WAITS]
        if self.run.status is RunStatus.PENDING and self.run.start_at is not None:
            waits.append(self.run.start_at)
        wakes = [at for at in waits if at is not None]
        if wakes:
            self.now = max(self.now, min(wakes))

    # Operators

    def _meddle(self, detail: int) -> None:
        if self.harmless:
            return
        match detail % 12:
            case 5:
                self.cancels(compensate=False)
            case 10 | 11:
                self.cancels(compensate=True if detail % 5 else None)
            case 0 | 1 | 6:
                self._operate(detail // 12, retry=True)
            case 2 | 3 | 4:
                self._operate(detail // 12, retry=False)
            case _ if self.run.status in SETTLED_RUN:
                self._operate(detail // 12, retry=self.run.compensation is not None)
            case _:
                pass

    def cancels(self, *, compensate: bool | None) -> Decision:
        """Somebody cancels the run."""
        cause = a_cause("cancel", reason="why")
        event = CancelRequested(
            seed=self.seed(), cause=cause, by="me", reason="why", compensate=compensate
        )
        return self.happens(event)

    def _operate(self, detail: int, *, retry: bool) -> None:
        """An operator has the run go on, or is told why it does not; some edit the input."""
        paths = [*self.run.definition.root.steps, *self.steps, "nowhere"]
        step = paths[detail % len(paths)]
        edited = msgspec.json.encode({"n": 1}) if detail % 3 == 0 else None
        cause = a_cause("retry" if retry else "redrive", reason="mended")
        if retry:
            named = step if detail % 4 == 0 else None
            self.happens(RetryRequested(seed=self.seed(), cause=cause, step=named, input=edited))
        else:
            self.happens(RedriveRequested(seed=self.seed(), cause=cause, step=step, input=edited))

    def _hold(self, detail: int) -> None:
        """An operator pauses or resumes, queues fill or empty, what is held is tried again."""
        held = self._held()
        step = self.run.steps.get(held or "")
        match detail % 6:
            case 0:
                self.happens(PauseRequested(seed=self.seed(), cause=a_cause("pause")))
            case 1:
                self.resumes()
            case 2 | 4 if not self.harmless and step is not None and step.due_at is not None:
                self.time_passes_until_due(step.path)
            case 2 | 3:
                self.closes(detail // 6)
            case _:
                self.closes(detail // 6)
                self.is_admitted(held)

    def resumes(self) -> Decision:
        """An operator lifts the pause of the run."""
        return self.happens(ResumeRequested(seed=self.seed(), cause=a_cause("resume")))

    def closes(self, detail: int) -> None:
        """What is closed to dispatches changes."""
        self.gate = _GATES[detail % len(_GATES)]

    def is_admitted(self, path: str | None) -> Decision:
        """What was held back is tried again."""
        event = StepAdmitted(seed=self.seed(), cause=a_cause("admitted"), path=path)
        return self.happens(event)

    # To the end

    def calm(self) -> None:
        """Deliver everything, once, in order, until the run has settled."""
        self.gate = OPEN
        for count in range(CALM_STEPS_MAX):
            if self.run.status in SETTLED_RUN:
                return
            if is_split(self.run):
                self.continues()
            elif self.run.seq == 0:
                self.begins()
            elif self.run.paused_at is not None:
                self.resumes()
            elif self._held() != NOTHING_HELD:
                self.is_admitted(self._held())
            elif self.reports_sent:
                self.deliver(0)
            elif self.stream:
                self.work(self.stream[0], 0)
            else:
                self._calm_wait(count)
        raise AssertionError(f"the run does not settle: {reasons_of(self.run)}")

    def _held(self) -> str | None:
        """The path of a ready step; None when the run itself is held."""
        if self.run.held_by is not None:
            return None
        return min(
            (path for path, step in self.run.steps.items() if step.held_by is not None),
            default=NOTHING_HELD,
        )

    def _calm_wait(self, count: int) -> None:
        """Nothing is on its way: somebody signals, a child settles, or time passes."""
        # In order of path: the order of the mapping is another in every process.
        steps = [self.run.steps[path] for path in sorted(self.run.steps)]
        if self.run.due_at is not None and self.run.due_at <= self.now:
            self.timer_fires(None)
            return
        awaited = [s for s in steps if s.waiting_for is WaitReason.SIGNAL]
        if awaited and self.harmless:
            self._send_signal(0)
            return
        if awaited and count % 2:
            names = (awaited[0].signal or "").split(",")
            self.is_signalled(names[count // 2 % len(names)], "same", at=BEGIN)
            return
        child = next((s for s in steps if s.waiting_for is WaitReason.CHILD), None)
        if child is not None:
            assert child.child_run_id is not None
            self.settles(child.child_run_id)
            return
        lost = [s for s in steps if s.token is not None and s.worker_id is None]
        due = [step.path for step in steps if step.due_at is not None]
        if lost and (self.harmless or not due):
            assert lost[0].token is not None
            self.vanished(lost[0].token)
            return
        self.time_passes_until_due(self._first_due(due))

    def _first_due(self, due: list[str]) -> str | None:
        def instant(path: str) -> str:
            return str(self.run.steps[path].due_at)

        path = min(due, key=instant, default=None)
        deadline = self.run.due_at
        if path is None or (deadline is not None and str(deadline) < instant(path)):
            return None
        return path
