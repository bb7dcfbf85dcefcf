"""A purge leaves alone what somebody else has in hand, and nobody waits for that."""

from datetime import datetime

from tests.support.store_builders import a_document, a_run, a_start, an_id, later, save
from tests.support.stores import a_postgres_store
from towpath_engine.core.model import Run
from towpath_engine.core.states import RunStatus
from towpath_engine.store.past import PurgeSize

SIZE = PurgeSize(runs_max=100, transitions_max=10_000)
LONG_AFTER = later(10_000)


def a_settled(number: int, workflow: str, at: datetime) -> Run:
    return a_run(number, workflow=workflow, status=RunStatus.COMPLETED, output=b"1", settled_at=at)


async def test_a_workflow_whose_overdue_runs_are_locked_holds_up_no_other(
    postgres_url: str,
) -> None:
    async with a_postgres_store(postgres_url) as store:
        for name in ("locked", "other"):
            await store.deploy_workflow(name, f"f-{name}", a_document(name))
        runs = [a_settled(1, "locked", later(0)), a_settled(2, "other", later(5))]
        await save(store, *map(a_start, runs))
        async with store.transaction() as tx:
            await tx.lock_runs([an_id(1)])
            batch = await store.past.purge_overdue(1, SIZE, now=LONG_AFTER)
            assert (batch.workflow, batch.purged) == ("other", 1)
            nothing = await store.past.purge_overdue(1, SIZE, now=LONG_AFTER)
            assert nothing.purged == 0
        batch = await store.past.purge_overdue(1, SIZE, now=LONG_AFTER)
        assert (batch.workflow, batch.purged) == ("locked", 1)
