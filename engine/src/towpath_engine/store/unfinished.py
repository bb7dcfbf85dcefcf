"""Open steps that wait for something other than a report, a signal or an instant.

Both are looked at by sweeps, a page at a time by (run, path): what was said in a message that got
lost is found in the rows.
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
