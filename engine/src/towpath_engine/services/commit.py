"""What follows a commit: publish the outbox, push cancels, arm timers, wake long polls."""

import structlog

from towpath_engine.core.events import DecisionContinued
from towpath_engine.core.model import Cause, Run, Step
from towpath_engine.core.states import SETTLED_RUN, StepStatus
from towpath_engine.services.batch import BatchResult
from towpath_engine.services.dispatch_watch import DispatchWatch
from towpath_engine.services.draft import RunDraft
from towpath_engine.services.leases import Leases, Partitions
from towpath_engine.services.outbox_relay import OutboxRelay
from towpath_engine.services.purger import Purger
from towpath_engine.services.settled_news import SettledNews
from towpath_engine.services.shell import Shell
from towpath_engine.services.stopped_attempts import StoppedAttempts
from towpath_engine.services.timer_service import TimerService, due_rows
from towpath_engine.services.wakes import Wakes
from towpath_engine.services.windows import Windows
from towpath_engine.services.work import Outcome, Work
from towpath_engine.store.interface import OutboxRow
from towpath_engine.store.leases import partition_of_run
from towpath_protocol import codec, subjects
from towpath_protocol.dispatch import StepCancel

log = structlog.get_logger(__name__)


class AfterCommit:
    """Called by the pipeline with every committed batch; never blocks, never raises."""

    def __init__(  # noqa: PLR0913 - one keyword per service that is told
        self,
        shell: Shell,
        *,
        leases: Leases,
        windows: Windows,
        wakes: Wakes,
        relay: OutboxRelay,
        timers: TimerService,
        watch: DispatchWatch,
        purger: Purger,
        stopped: StoppedAttempts,
        news: SettledNews,
    ) -> None:
        self._shell = shell
        self._leases = leases
        self._windows = windows
        self._wakes = wakes
        self._relay = relay
        self._timers = timers
        self._watch = watch
        self._purger = purger
        self._stopped = stopped
        self._news = news
        self._going_on: dict[str, bool] = {}
        """Runs that are about to do the rest of a decision, and whether there was one since."""

    def __call__(self, result: BatchResult) -> None:
        """Carry out what the committed drafts ask for."""
        rows: list[OutboxRow] = []
        for draft in result.drafts:
            self._windows.ended(draft.revoked)
            rows.extend(draft.outbox)
        if rows:
            self._relay.publish(rows)
        owned = self._leases.owned
        for draft in result.drafts:
            self._arm(draft.run, list(draft.changed.values()), owned)
            self._after_run(draft)
        for run, path in result.rearmed:
            step = None if path is None else run.steps.get(path)
            self._arm(run, [] if step is None else [step], owned)
        self._wakes.send()
        self._news.send()
        self._count_letters(result)

    def _arm(self, run: Run, steps: list[Step], owned: Partitions) -> None:
        """Take over the run's instants, or have its owner do so."""
        rows = due_rows(run, steps)
        if partition_of_run(run.id) in owned:
            for row in rows:
                self._timers.arm(row)
        else:
            self._wakes.add(run.id, run.version, rows)

    def _after_run(self, draft: RunDraft) -> None:
        run = draft.run
        for effect in draft.revoked:
            self._watch.forget(effect.token)
            if not effect.purge:
                continue  # its worker has the message, and acknowledges it
            self._purger.purge(
                subjects.dispatch_subject(
                    self._shell.prefix,
                    subjects.DispatchSubject(
                        queue=effect.queue,
                        level=effect.level,
                        run_id=run.id,
                        token=effect.token,
                    ),
                )
            )
        for effect in draft.cancelled:
            push = StepCancel(
                run_id=run.id, step=effect.path, token=effect.token, reason=effect.reason
            )
            subject = subjects.control_subject(self._shell.prefix, effect.queue)
            self._shell.bus.send_core(subject, codec.encode(push))
        if draft.cancelled:
            self._stop(draft)
        if draft.continues:
            self._go_on(run.id)
        self._count(draft)

    def _go_on(self, run_id: str) -> None:
        """Have the rest of a split decision done: by one work at a time, so that a batch does one
        slice of a run, however many events have found that there is a rest."""
        if run_id in self._going_on:
            self._going_on[run_id] = True
            return
        self._going_on[run_id] = False

        def settle(_: Outcome) -> None:
            if self._going_on.pop(run_id):
                self._go_on(run_id)

        event = DecisionContinued(seed=self._shell.identity.new_seed(), cause=Cause(type="engine"))
        self._shell.submit(Work(settle=settle, run_id=run_id, event=event))

    def _stop(self, draft: RunDraft) -> None:
        """Of attempts that are to end by themselves: find out whether anybody has them."""
        for step in draft.changed.values():
            if step.status is not StepStatus.CANCELLING or step.stage is not StepStatus.DISPATCHED:
                continue
            if step.token is not None and step.queue is not None:
                self._stopped.stop(
                    subjects.DispatchSubject(
                        queue=step.queue,
                        level=draft.run.priority,
                        run_id=draft.run.id,
                        token=step.token,
                    )
                )

    def _count_letters(self, result: BatchResult) -> None:
        """Of signals that nobody wants. What could not be kept is lost, which is for a person."""
        metrics = self._shell.metrics
        for letter in (*result.letters, *(one for d in result.drafts for one in d.letters)):
            metrics.dead_letters.labels(reason=letter.reason).inc()
            log.warning("signal_refused", run_id=letter.run_id, message=letter.message[:200])
        if result.letters_dropped:
            metrics.dead_letters_dropped.inc(result.letters_dropped)
            log.error("dead_letters_full", dropped=result.letters_dropped)

    def _count(self, draft: RunDraft) -> None:
        run = draft.run
        if draft.expected_version is None:
            self._shell.metrics.runs_started.labels(workflow=run.workflow).inc()
        for effect in draft.dispatches:
            self._shell.metrics.steps_dispatched.labels(queue=effect.queue).inc()
        for transition in draft.transitions:
            self._shell.metrics.transitions.labels(what=transition.what).inc()
        if run.status in SETTLED_RUN:
            self._shell.metrics.runs_settled.labels(workflow=run.workflow, status=run.status).inc()
            self._news.settled(run.id)
