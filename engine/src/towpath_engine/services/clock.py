"""The one clock: Postgres', followed by this engine as monotonic time plus an offset.

Every stored instant comes from here, so that engines on machines whose clocks disagree still
agree with each other and with the database.
"""

import secrets
import time
from datetime import UTC, datetime, timedelta

from towpath_engine.store.interface import Store
from towpath_protocol.ids import new_uuid7


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

    def new_id(self) -> str:
        """A UUIDv7 of now, lower case."""
        at_ms = int(self._clock.now().timestamp() * 1_000)
        return new_uuid7(at_ms, secrets.token_bytes(10))

    def new_seed(self) -> str:
        """32 hex digits: what one event derives jitter and tokens from."""
        return secrets.token_hex(16)
