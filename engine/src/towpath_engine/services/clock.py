"""The one clock: Postgres', followed by this engine as monotonic time plus an offset.

Every stored instant comes from here, so that engines on machines whose clocks disagree still
agree with each other and with the database.
"""

import secrets
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from towpath_engine.store.interface import Store
from towpath_protocol.ids import UUID_RANDOM_BYTES, new_uuid7

_SEED_BYTES: Final = 16
_CHANCE_BYTES: Final = 4 * 1024
"""Asked of the system at once: each question is a system call."""


class Clock:
    """Gives `now()` without a round trip. Call `sync()` at start and every few seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._base = datetime.now(UTC)
        self._at = time.monotonic_ns()

    async def sync(self) -> None:
        """Read the database's clock; halves the round trip out of the error.

        Raises StoreUnavailable when the store can't be reached; the old offset then stays.
        """
        before = time.monotonic_ns()
        base = await self._store.now()
        after = time.monotonic_ns()
        self._base, self._at = base, (before + after) // 2

    def now(self) -> datetime:
        """The database's time, as well as we know it."""
        return self._base + timedelta(microseconds=(time.monotonic_ns() - self._at) // 1_000)


class Identity:
    """Makes ids and seeds: the chance of the shell, handed to the core as data."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chance = b""
        self._used = 0

    def new_id(self) -> str:
        """A UUIDv7 of now, lower case."""
        at_ms = int(self._clock.now().timestamp() * 1_000)
        return new_uuid7(at_ms, self._take(UUID_RANDOM_BYTES))

    def new_seed(self) -> str:
        """32 hex digits: what one event derives jitter and tokens from."""
        return self._take(_SEED_BYTES).hex()

    def _take(self, count: int) -> bytes:
        """Bytes of chance that nobody else gets."""
        first, self._used = self._used, self._used + count
        if self._used > len(self._chance):
            self._chance = secrets.token_bytes(_CHANCE_BYTES)
            first, self._used = 0, count
        return self._chance[first : self._used]
