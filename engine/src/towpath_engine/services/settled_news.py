"""Who waits for the result of a run is told when it settles, whichever engine wrote that.

A long poll is answered by any engine, and the run may settle at another: that one says so on
`P.wake.settled`. Best effort: a message that is lost is made good by the sweep of the waiters.
"""

from typing import Final

import msgspec

from towpath_engine.services.leases import Leases
from towpath_engine.services.result_waiters import ResultWaiters
from towpath_engine.services.shell import Shell
from towpath_protocol import subjects

_RUNS_MAX: Final = 500
"""Runs of one message."""
_DECODER: Final = msgspec.json.Decoder(list[str])


class SettledNews:
    """`settled` for each run of a commit that has settled, `send` once a commit.

    Nothing is sent while this engine is the only one.
    """

    def __init__(self, shell: Shell, *, leases: Leases, waiters: ResultWaiters) -> None:
        self._shell = shell
        self._leases = leases
        self._waiters = waiters
        self._subject = subjects.wake_settled_subject(shell.prefix)
        self._unsent: list[str] = []
        shell.bus.subscribe_core(self._subject, self._receive)

    def settled(self, run_id: str) -> None:
        """A run has settled: wake who waits for it here, and tell the others with `send`."""
        self._waiters.settled(run_id)
        if self._leases.engines > 1:
            self._unsent.append(run_id)

    def send(self) -> None:
        """Tell the other engines what has settled."""
        if not self._unsent:
            return
        run_ids, self._unsent = self._unsent, []
        for first in range(0, len(run_ids), _RUNS_MAX):
            self._shell.metrics.wakes.labels(direction="sent").inc()
            body = msgspec.json.encode(run_ids[first : first + _RUNS_MAX])
            self._shell.bus.send_core(self._subject, body)

    def _receive(self, _subject: str, body: bytes) -> None:
        try:
            run_ids = _DECODER.decode(body)
        except msgspec.MsgspecError:
            return  # of another release: the sweep finds what it was about
        self._shell.metrics.wakes.labels(direction="received").inc()
        for run_id in run_ids[:_RUNS_MAX]:
            self._waiters.settled(run_id)
