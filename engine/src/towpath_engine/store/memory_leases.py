"""The leases over dictionaries, as `lease_tick.sql` has them."""

from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct

from towpath_engine.store.leases import (
    PARTITIONS,
    LeaseAnswer,
    LeaseTick,
    Origin,
    Standing,
    share,
)


class _Lease(Struct, frozen=True):
    engine_id: str
    expires_at: datetime | None
    """None: abandoned."""


class MemoryLeases:
    """See `store.leases.LeaseTable`."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._engines: dict[str, tuple[Standing, datetime]] = {}
        self._leases: dict[int, _Lease] = {}

    async def tick(self, tick: LeaseTick, *, now: datetime | None = None) -> LeaseAnswer:
        """See LeaseTable."""
        moment = now or self._clock()
        expires_at = moment + timedelta(seconds=tick.lease_seconds)
        self._engines[tick.engine_id] = (tick.standing, expires_at)
        living = {
            engine_id: standing
            for engine_id, (standing, until) in self._engines.items()
            if until > moment and standing is not Standing.STOPPING
        }
        target = _target(tick.engine_id, living)
        for partition, lease in list(self._leases.items()):
            if lease.engine_id == tick.engine_id and partition in tick.released:
                del self._leases[partition]
            elif lease.engine_id == tick.engine_id and partition in tick.abandoned:
                self._leases[partition] = _Lease(tick.engine_id, None)
        kept = {
            partition
            for partition, lease in self._leases.items()
            if lease.engine_id == tick.engine_id and _lives(lease, moment)
        }
        given = {*tick.released, *tick.abandoned}
        free = {
            partition: Origin.EXPIRED if partition in self._leases else Origin.RELEASED
            for partition in PARTITIONS
            if partition not in given and not _lives(self._leases.get(partition), moment)
        }
        acquired = dict(list(free.items())[: max(0, target - len(kept))])
        for partition in {*kept, *acquired}:
            self._leases[partition] = _Lease(tick.engine_id, expires_at)
        return LeaseAnswer(
            kept=frozenset(kept), acquired=acquired, target=target, engines=len(living)
        )


def _lives(lease: _Lease | None, moment: datetime) -> bool:
    return lease is not None and lease.expires_at is not None and lease.expires_at > moment


def _target(engine_id: str, living: dict[str, Standing]) -> int:
    fit = [one for one, standing in living.items() if standing is Standing.FIT]
    able = sorted(fit or living)
    return share(able.index(engine_id), len(able)) if engine_id in able else 0
