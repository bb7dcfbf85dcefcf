"""Open steps that wait for something other than a report, a signal or an instant.

They and what they leave behind are looked at by sweeps, a page at a time: what was said in a
message that got lost is found in the rows.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from towpath_engine.store.records import OpenDispatch


class AwaitedChild(Struct, frozen=True, kw_only=True):
    """A step that waits for its child run, and how far the child is."""

    run_id: str
    path: str
    child_run_id: str
    exists: bool
    settled: bool
    detached: bool = False
    """The child is there, and that is all that the step waits for."""


class OrphanedChild(Struct, frozen=True, kw_only=True):
    """A live child run whose end its parent's step does not wait for any more."""

    run_id: str
    parent_run_id: str
    parent_step: str


class UnfinishedTable(Protocol):
    """Pages of them. Methods raise StoreUnavailable."""

    async def cancelling(self, after: tuple[str, str] | None, limit: int) -> Sequence[OpenDispatch]:
        """Attempts that are being cancelled and whose dispatch nobody may have seen."""
        ...

    async def awaited_children(
        self, after: tuple[str, str] | None, limit: int
    ) -> Sequence[AwaitedChild]:
        """Steps that wait for a child run."""
        ...

    async def orphaned_children(self, after: str | None, limit: int) -> Sequence[OrphanedChild]:
        """Live children that nobody waits for, in order of their ids, without those that are
        ending or that an operator had go on; `after` is the id of a run."""
        ...
