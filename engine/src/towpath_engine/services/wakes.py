"""Wakes on `P.wake.<n>`: an engine that committed for a run it does not own tells the owner, who
arms the timers that are near and forgets its copy of the run. A wake about no run says that a pause
was lifted, and the owner tries again what it has held.

Best effort, and a convenience: a copy that is out of date is fenced by the version, and the
owner's sweep finds every timer. What a wake says is never taken for more than a hint.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from towpath_engine.services.leases import Leases, Partitions
from towpath_engine.services.run_cache import RunCache
from towpath_engine.services.shell import Shell
from towpath_engine.services.timer_service import TimerService
from towpath_engine.store.leases import partition_of_run
from towpath_engine.store.records import DueTimer
from towpath_protocol import subjects

_RUNS_MAX: Final = 500
"""Runs of one message, and …"""
_BYTES_MAX: Final = 256 * 1024
"""… how large it may be, unless it is about one run: that is half as large at most."""
_TIMERS_MAX: Final = 100
"""Timers of one run; what is more, and what is not near, is left to the sweep."""


class WokenTimer(Struct, frozen=True, array_like=True):
    """An instant of a run; path None: its own."""

    path: str | None
    due_at: datetime
    preemptible: bool


class WokenRun(Struct, frozen=True, array_like=True):
    """A run that somebody else has written."""

    run_id: str
    version: int
    timers: Sequence[WokenTimer] = ()


_DECODER: Final = msgspec.json.Decoder(list[WokenRun])


class Wakes:
    """`add` each run that is another engine's, `send` once a commit. `on_resumed` is called when
    what a pause has held may go: the ticker of `Admission` must wake."""

    def __init__(
        self, shell: Shell, *, leases: Leases, cache: RunCache, timers: TimerService
    ) -> None:
        self._shell = shell
        self._leases = leases
        self._cache = cache
        self._timers = timers
        self._waiting: dict[int, list[WokenRun]] = {}
        self.on_resumed: Callable[[], None] = lambda: None
        leases.on_acquired.append(self._listen)
        leases.on_lost.append(self._ignore)
        shell.bus.subscribe_core(
            subjects.wake_all_subject(shell.prefix), lambda _subject, _body: leases.on_told()
        )

    def add(self, run_id: str, version: int, timers: Sequence[DueTimer]) -> None:
        """Have the owner told about a run as it was just committed."""
        near = [row for row in timers if self._timers.is_near(row.due_at)][:_TIMERS_MAX]
        if version <= 1 and not near:
            return  # it is new: nobody has a copy
        told = [WokenTimer(row.path, row.due_at, row.preemptible) for row in near]
        run = WokenRun(run_id, version, told)
        self._waiting.setdefault(partition_of_run(run_id), []).append(run)

    def send(self) -> None:
        """Send what was added."""
        waiting, self._waiting = self._waiting, {}
        for partition, runs in waiting.items():
            subject = subjects.wake_subject(self._shell.prefix, partition)
            for body in wakes_of(runs):
                self._shell.metrics.wakes.labels(direction="sent").inc()
                self._shell.bus.send_core(subject, body)

    def _listen(self, partitions: Partitions) -> None:
        for partition in partitions:
            self._shell.bus.subscribe_core(
                subjects.wake_subject(self._shell.prefix, partition), self._receive
            )

    def _ignore(self, partitions: Partitions) -> None:
        for partition in partitions:
            self._shell.bus.unsubscribe_core(subjects.wake_subject(self._shell.prefix, partition))

    def _receive(self, _subject: str, body: bytes) -> None:
        try:
            runs = _DECODER.decode(body)
        except msgspec.MsgspecError:
            return  # of another release: the sweep finds what it was about
        self._shell.metrics.wakes.labels(direction="received").inc()
        if not runs:
            self.on_resumed()
        for run in runs[:_RUNS_MAX]:
            if not self._leases.owns_run(run.run_id):
                continue
            self._cache.drop_older(run.run_id, run.version)
            for timer in run.timers[:_TIMERS_MAX]:
                self._timers.arm(
                    DueTimer(
                        run_id=run.run_id,
                        path=timer.path,
                        due_at=timer.due_at,
                        preemptible=timer.preemptible,
                    )
                )


def wakes_of(runs: Sequence[WokenRun]) -> Iterator[bytes]:
    """The messages that tell of these runs, none of them larger than a server takes."""
    part: list[bytes] = []
    size = 0
    for run in runs:
        told = msgspec.json.encode(run)
        if part and (len(part) == _RUNS_MAX or size + len(told) > _BYTES_MAX):
            yield b"[" + b",".join(part) + b"]"
            part, size = [], 0
        part.append(told)
        size += len(told) + 1
    if part:
        yield b"[" + b",".join(part) + b"]"
