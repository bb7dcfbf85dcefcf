"""An answer about a run shows one moment of it, although the run goes on while it is read."""

import pytest

from tests.support.wire_client import WireClient
from tests.support.workflows import one_task
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run
from towpath_engine.core.parse import parse_definition
from towpath_engine.core.states import StepStatus
from towpath_engine.services.api.errors import ApiFailureError
from towpath_engine.services.api.reading import read_at_rest
from towpath_engine.store.postgres import open_postgres_store


async def test_a_run_is_read_again_when_a_commit_came_between(
    wire: WireClient, postgres_url: str, schema: str
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    store = await open_postgres_store(
        postgres_url, schema, limits=CoreLimits(), pool_size=2, parse=parse_definition
    )
    seen: list[str] = []

    async def read(run: Run) -> tuple[str, list[StepStatus]]:
        seen.append(run.status.value)
        if len(seen) == 1:
            await wire.complete(dispatch, output=1)
            assert (await wire.result(run_id))["status"] == "completed"
        rows = await store.get_steps(run.id, None, 10)
        return run.status.value, [row.status for row in rows]

    try:
        assert await read_at_rest(store, run_id, read) == ("completed", [StepStatus.COMPLETED])
        assert seen == ["running", "completed"]
        with pytest.raises(ApiFailureError, match="does not exist"):
            await read_at_rest(store, "01a22b1b-f673-7fed-b476-329bb86a6561", read)
    finally:
        await store.close()
