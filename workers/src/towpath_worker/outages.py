"""What a connection says about a server that is not there: at once, then more and more seldom."""

import logging
from collections.abc import Callable
from typing import Final

from towpath_worker.clock import now_ms

_log = logging.getLogger("towpath.worker.transport")

_NOT_LET_IN: Final = "authorization violation"
_WHERE: Final = "is TOWPATH_NATS_URL right?"
_WHO: Final = (
    "it does not let us in: are TOWPATH_NATS_USER and TOWPATH_NATS_PASSWORD right (or "
    "TOWPATH_NATS_TOKEN, _CREDENTIALS_FILE, _NKEY_SEED_FILE)?"
)
REPEAT_MIN_MS: Final = 30_000
REPEAT_MAX_MS: Final = 300_000
REASONS_MAX: Final = 5
"""Different reasons of one outage that are told at once."""


class OutageLog:
    """One connection's. `aloud` False: another connection of this process tells the same, so this
    one does it at level debug."""

    def __init__(
        self, address: str, *, aloud: bool = True, clock: Callable[[], int] = now_ms
    ) -> None:
        self._address = address
        self._aloud = aloud
        self._clock = clock
        self._since_ms: int | None = None
        self._due_ms = 0
        self._gap_ms = REPEAT_MIN_MS
        self._reasons: set[str] = set()

    def failed(self, reason: str) -> None:
        """There is no connection, and `reason` is the newest one why; however often."""
        now = self._clock()
        if self._since_ms is None:
            self._since_ms = now
            self._due_ms = now + self._gap_ms
            self._reasons.add(reason)
            text = "nats_unreachable url=%s error=%s; it is asked again until it answers: %s"
            self._tell(logging.WARNING, text, self._address, reason, _hint(reason))
        elif reason not in self._reasons and len(self._reasons) < REASONS_MAX:
            self._reasons.add(reason)
            text = "nats_unreachable url=%s error=%s; %s"
            self._tell(logging.WARNING, text, self._address, reason, _hint(reason))
        elif now >= self._due_ms:
            self._gap_ms = min(REPEAT_MAX_MS, self._gap_ms * 2)
            self._due_ms = now + self._gap_ms
            seconds = (now - self._since_ms) // 1000
            text = "nats_unreachable url=%s for_seconds=%d error=%s; %s"
            self._tell(logging.WARNING, text, self._address, seconds, reason, _hint(reason))

    def over(self) -> None:
        """There is a connection: the first one, or another one."""
        self._tell(logging.INFO, "nats_connected url=%s", self._address)
        self._since_ms = None
        self._gap_ms = REPEAT_MIN_MS
        self._reasons.clear()

    def _tell(self, level: int, text: str, *facts: object) -> None:
        _log.log(level if self._aloud else logging.DEBUG, text, *facts)


def refuses_us(reason: str) -> bool:
    """Whether the server is there, and does not know us."""
    return _NOT_LET_IN in reason.lower()


def _hint(reason: str) -> str:
    return _WHO if refuses_us(reason) else _WHERE
