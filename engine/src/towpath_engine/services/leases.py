"""Which partitions this engine owns now: renews them, takes its share, lets go of what is more.

To own is a matter of speed, never of right: what an engine writes is fenced by the version of the
run. An engine that was paused longer than its leases finds them void by its own clock, before it
has asked anybody, and does nothing as an owner.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.services.shell import Shell
from towpath_engine.store.errors import StoreUnavailable
from towpath_engine.store.leases import LeaseAnswer, LeaseTick, Origin, Standing, partition_of_run
from towpath_protocol import subjects

log = structlog.get_logger(__name__)

LEADER_PARTITION: Final = 0
"""Its owner does what one engine does for all."""
_MARGIN_SECONDS: Final = 0.25
"""So much earlier than the store does its owner take a lease for over."""
_PATIENCE_SECONDS: Final = 5.0
"""How long an engine without NATS waits for its own connection before it gives partitions up."""

Partitions = frozenset[int]
NONE: Final[Partitions] = frozenset()


def boot_seconds() -> float:
    """Seconds that pass also while the process, or the machine, is stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leases:
    """`renew` once a tick, and at once when somebody moves; `move` when there is something to move.

    `on_acquired` and `on_lost` are called with partitions, `on_moves` when `move` has work to do,
    `on_told` when `renew` has.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        lease_seconds: float,
        release_seconds: float,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._shell = shell
        self._clock = clock
        self._engine_id = shell.identity.new_id()
        self._lease_seconds = lease_seconds
        self._release_seconds = release_seconds
        self._deadline = 0.0
        self.engines = 1
        """How many engines live, as the last tick was told."""
        self._owned = NONE
        self._fresh: set[int] = set()
        """Owned, but its consumer has to begin anew before it is pulled."""
        self._leaving = NONE
        """More than our share: to be let go of."""
        self._going = NONE
        """Being let go of right now."""
        self._released: set[int] = set()
        self._abandoned: set[int] = set()
        self._stopping = False
        self._connected_at = self._outranked_at = self._clock()
        self._renewing = asyncio.Lock()
        self._moving = asyncio.Lock()
        self.on_acquired: list[Callable[[Partitions], None]] = []
        self.on_lost: list[Callable[[Partitions], None]] = []
        self.on_moves: Callable[[], None] = lambda: None
        self.on_told: Callable[[], None] = lambda: None
        shell.bus.guard_partitions(self.valid)
        shell.bus.set_partitions(NONE)
        shell.metrics.partitions_owned.set_function(lambda: len(self.owned))

    def valid(self) -> bool:
        """False when the leases have passed without having been renewed."""
        return self._clock() < self._deadline

    @property
    def owned(self) -> Partitions:
        """The partitions that this engine owns at this moment."""
        return self._owned if self.valid() else NONE

    def owns(self, partition: int) -> bool:
        """Whether this engine owns the partition at this moment."""
        return partition in self._owned and self.valid()

    def owns_run(self, run_id: str) -> bool:
        """Whether this engine owns the partition of the run."""
        return self.owns(partition_of_run(run_id))

    @property
    def leads(self) -> bool:
        """True in one engine: the one that does what is done once for all of them."""
        return self.owns(LEADER_PARTITION)

    # Leases

    async def renew(self) -> int:
        """Renew, take what is free up to our share, tell what was let go of; returns how many
        partitions are owned. Raises StoreUnavailable."""
        async with self._renewing:
            began = self._clock()
            self._lose_what_has_passed()
            said = LeaseTick(
                engine_id=self._engine_id,
                standing=self._standing(),
                lease_seconds=self._lease_seconds,
                released=sorted(self._released),
                abandoned=sorted(self._abandoned),
            )
            answer = await self._shell.store.leases.tick(said)
            self._lose_what_has_passed()  # also while the store was thinking
            self._deadline = began + self._lease_seconds - _MARGIN_SECONDS
            self._released.difference_update(said.released)
            self._abandoned.difference_update(said.abandoned)
            self._take_over(answer)
        self.engines = max(1, answer.engines)
        self._shell.metrics.engines_live.set(answer.engines)
        if said.released or said.abandoned:
            self.nudge()
        return len(self._owned)

    def nudge(self) -> None:
        """Have the others look at the leases now, not with their next tick."""
        self._shell.bus.send_core(subjects.wake_all_subject(self._shell.prefix), b"{}")

    def _standing(self) -> Standing:
        if self._stopping:
            return Standing.STOPPING
        if self._shell.bus.connected:
            self._connected_at = self._clock()
        cut_off = self._clock() - self._connected_at > _PATIENCE_SECONDS
        return Standing.CUT_OFF if cut_off else Standing.FIT

    def _lose_what_has_passed(self) -> None:
        if not self.valid() and (self._owned or self._leaving):
            log.warning("leases_passed", partitions=sorted(self._owned | self._leaving))
            self._lose(self._owned | self._leaving)

    def _take_over(self, answer: LeaseAnswer) -> None:
        """Make what we own what the store says, and mark what is more than our share."""
        mine = answer.kept | answer.acquired.keys()
        gone = (self._owned | self._leaving) - mine
        if gone:
            self._lose(gone)
        # What was let go of while the store was answering is not ours, whatever it answers.
        new = mine - self._owned - self._leaving - self._released - self._abandoned
        if new:
            self._acquire(new, answer)
        if len(self._owned) > answer.target and self._may_leave(answer):
            self._leave(frozenset(sorted(self._owned)[answer.target :]))

    def _acquire(self, new: Partitions, answer: LeaseAnswer) -> None:
        # One that is ours without our knowing was acquired by a tick whose answer was lost.
        unclean = {p for p in new if answer.acquired.get(p) is not Origin.RELEASED}
        self._fresh |= unclean
        self._owned |= new
        log.info("partitions_acquired", partitions=sorted(new), expired=sorted(unclean))
        self._count("acquired", len(new - unclean))
        self._count("inherited", len(unclean))
        self._apply()
        for callback in self.on_acquired:
            callback(new)
        if unclean:
            self.on_moves()

    def _may_leave(self, answer: LeaseAnswer) -> bool:
        """An engine that NATS has just left waits a moment: they may all have lost it, and are
        coming back one after the other."""
        if answer.target or self._stopping or self._shell.bus.connected:
            self._outranked_at = self._clock()
            return True
        return self._clock() - self._outranked_at > _PATIENCE_SECONDS

    def _leave(self, surplus: Partitions) -> None:
        self._owned -= surplus
        self._leaving |= surplus
        for callback in self.on_lost:
            callback(surplus)
        self.on_moves()

    def _lose(self, lost: Partitions) -> None:
        held = lost & self._owned
        self._owned -= lost
        self._leaving -= lost
        self._fresh -= lost
        self._count("lost", len(lost))
        self._apply()
        if held:
            for callback in self.on_lost:
                callback(held)

    def _apply(self) -> None:
        """Tell the bus what to pull. What is being let go of is no longer to be touched."""
        pulled = (self._owned | self._leaving) - self._fresh - self._going
        self._shell.bus.set_partitions(pulled)

    def _count(self, how: str, partitions: int) -> None:
        if partitions:
            self._shell.metrics.partitions_moved.labels(how=how).inc(partitions)

    # Moves

    async def move(self) -> int:
        """Begin anew what a dead engine left, let go of what is more than our share; returns how
        many partitions have moved. Raises BusUnavailable."""
        async with self._moving:
            moved = await self._let_go()
            return moved + await self._inherit()

    async def _inherit(self) -> int:
        fresh = sorted(self._fresh)
        await asyncio.gather(*(self._shell.bus.reset_partition(one) for one in fresh))
        self._fresh.difference_update(fresh)
        if fresh:
            self._apply()
        return len(fresh)

    async def _let_go(self) -> int:
        going = self._going = self._leaving
        if not going:
            return 0
        clean = going - self._fresh
        try:
            await self._shell.bus.let_go(clean, timeout_s=self._release_seconds)
        except BusUnavailable as error:
            log.warning("partitions_abandoned", partitions=sorted(going), error=str(error))
            clean = NONE
        finally:
            self._going = NONE
        still = going & self._leaving  # unless the leases have passed meanwhile
        self._leaving -= still
        self._fresh -= still
        self._released |= clean & still
        self._abandoned |= still - clean
        self._count("released", len(still))
        log.info("partitions_let_go", partitions=sorted(still), abandoned=sorted(still - clean))
        self.on_told()
        return len(still)

    async def leave(self) -> None:
        """Give everything away, for a clean stop: others take it over at once. Never raises for a
        server that is away: then the leases pass by themselves."""
        self._stopping = True
        try:
            await self.renew()  # the others' shares are larger from now on
            await self.move()
            await self.renew()
        except (StoreUnavailable, BusUnavailable) as error:
            log.warning("leases_not_given_back", error=str(error))
