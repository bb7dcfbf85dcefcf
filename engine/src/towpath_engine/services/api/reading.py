"""Reading a run together with what belongs to it, although it goes on meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from towpath_engine.core.model import Run
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.services.api.errors import ApiFailureError
from towpath_engine.store.interface import Store
from towpath_protocol.errors import ErrorCode

T = TypeVar("T")

_READINGS_MAX: Final = 10


async def read_at_rest(store: Store, run_id: str, read: Callable[[Run], Awaitable[T]]) -> T:
    """What `read` makes of the run, read again while a commit came between the two: an old run with
    new steps would look as if nothing moved it.

    A settled run is read once. One that never rests long enough is answered as it was last seen.
    Raises ApiFailureError (run_not_found).
    """
    run = await existing(store, run_id)
    found = await read(run)
    for _ in range(_READINGS_MAX):
        if run.status in SETTLED_RUN:
            break
        again = await existing(store, run_id)
        if again.version == run.version:
            break
        run = again
        found = await read(run)
    return found


async def existing(store: Store, run_id: str) -> Run:
    """The run. Raises ApiFailureError (run_not_found)."""
    run = await store.get_run(run_id)
    if run is None:
        raise ApiFailureError(ErrorCode.RUN_NOT_FOUND, f"run {run_id} does not exist")
    return run
