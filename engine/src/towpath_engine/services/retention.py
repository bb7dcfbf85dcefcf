"""Deletes settled runs whose time is over: one bounded batch a tick, the longest overdue first."""

from collections.abc import Callable
from typing import Final

import structlog
from msgspec import Struct

from towpath_engine.services.shell import Shell
from towpath_engine.store.past import PurgedBatch, PurgeSize

log = structlog.get_logger(__name__)

_MS: Final = 1_000


class RetentionRules(Struct, frozen=True, kw_only=True):
    """`kept_seconds` counts where a workflow says nothing of its own (0: for ever). Between two
    batches there is a pause of `pause_seconds`, and of `idle_seconds` when nothing is overdue."""

    kept_seconds: float
    size: PurgeSize
    pause_seconds: float
    idle_seconds: float


class Retention:
    """`run_once` deletes one batch, on the engine that `leads`: so the pace is that of the
    settings, whatever the number of engines. Two that believe to lead do no harm: a run that one
    has in hand is left alone by the other."""

    def __init__(self, shell: Shell, rules: RetentionRules, *, leads: Callable[[], bool]) -> None:
        self._shell = shell
        self._rules = rules
        self._leads = leads
        self._more = False

    def pause_seconds(self) -> float:
        """How long to wait before the next tick."""
        return self._rules.pause_seconds if self._more else self._rules.idle_seconds

    async def run_once(self) -> int:
        """Returns how many runs were deleted. Raises StoreUnavailable."""
        self._more = False
        if not self._leads():
            return 0
        default_ms = round(self._rules.kept_seconds * _MS)
        batch = await self._shell.store.past.purge_overdue(default_ms, self._rules.size)
        # Whatever was found: another workflow may have overdue runs, too.
        self._more = batch.purged > 0
        count_purged(self._shell, batch)
        return batch.purged


def count_purged(
    shell: Shell,
    batch: PurgedBatch,
    *,
    run_id: str | None = None,
    by: str | None = None,
    why: str | None = None,
) -> None:
    """Count and log what a batch has deleted, with the operator who wanted it, if one did."""
    if batch.purged:
        shell.metrics.runs_purged.inc(batch.purged)
        log.info(
            "runs_purged",
            workflow=batch.workflow,
            run_id=run_id,
            count=batch.purged,
            by=by,
            reason=why,
        )
