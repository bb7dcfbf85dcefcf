"""The queues of the installation: remembered in Postgres, with their consumers in JetStream."""

from collections.abc import Iterable

from towpath_engine.bus.errors import BusRefused
from towpath_engine.bus.interface import Bus
from towpath_engine.store.interface import Store
from towpath_protocol.errors import ErrorCode, ProtocolError


class Queues:
    """`ensure` before a deploy answers; `refresh` learns what other engines added."""

    def __init__(self, *, store: Store, bus: Bus, queues_max: int) -> None:
        self._store = store
        self._bus = bus
        self._queues_max = queues_max
        self._known: set[str] = set()

    async def ensure(self, queues: Iterable[str]) -> None:
        """Make sure that these queues exist, with their four consumers each.

        Raises ProtocolError (`queues_full`) beyond our limit or the server's, StoreUnavailable,
        BusUnavailable.
        """
        new = sorted(set(queues) - self._known)
        if not new:
            return
        # First the row, whose number is limited for all engines together, then the consumers.
        # Should we die in between, the next `refresh` of any engine makes them.
        added = await self._store.add_queues(new, self._queues_max)
        if added is None:
            raise ProtocolError(
                ErrorCode.QUEUES_FULL,
                f"there are so many queues that {', '.join(new)} would be beyond the limit of "
                f"{self._queues_max}",
                field="queue",
                fix="use an existing queue, or raise the setting queue_count_max",
            )
        try:
            await self._bus.ensure_queues(new)
        except BusRefused as refused:
            # An engine does not start without the consumers of every stored queue.
            await self._store.remove_queues(added)
            raise ProtocolError(ErrorCode.QUEUES_FULL, str(refused), field="queue") from refused
        self._known.update(new)

    async def refresh(self) -> int:
        """Create the consumers of every queue in Postgres; returns how many were new to us."""
        new = sorted(set(await self._store.list_queues()) - self._known)
        if new:
            await self._bus.ensure_queues(new)
            self._known.update(new)
        return len(new)
