"""Whatever is lost between a run and its child, both come to their end."""

from typing import Any

import asyncpg
import pytest

from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.wire_client import connected

Json = Any

CHILD = {"workflow": "child", "steps": [{"name": "nap", "sleep": "4s"}, {"name": "v", "pass": 5}]}
SLEEPER = {"workflow": "child", "steps": [{"name": "nap", "sleep": "1h"}]}
PARENT = {
    "workflow": "parent",
    "steps": [{"name": "before", "sleep": "4s"}, {"name": "child", "run": {"workflow": "child"}}],
}
LOOSE = {
    "workflow": "parent",
    "steps": [
        {"name": "before", "sleep": "4s"},
        {"name": "child", "run": {"workflow": "child", "detached": True}},
    ],
}
AT_ONCE = {"workflow": "parent", "steps": [{"name": "child", "run": {"workflow": "child"}}]}
FAILING = {
    "workflow": "parent",
    "steps": [
        {
            "name": "both",
            "parallel": {
                "branches": {
                    "a": [{"name": "child", "run": {"workflow": "child"}}],
                    "b": [{"name": "nap", "sleep": "4s"}, {"name": "bad", "pass": "${ 1 / 0 }"}],
                }
            },
        }
    ],
}


class Losses:
    """Runs what a parent and its child decide while NATS is away, and takes what they said."""

    def __init__(self, server: JetStreamServer, postgres_url: str, schema: str) -> None:
        self.server = server
        self.postgres_url = postgres_url
        self.schema = schema
        self.prefix = unique_prefix()

    async def rows(self, query: str) -> list[Json]:
        connection = await asyncpg.connect(self.postgres_url)
        try:
            await connection.execute(f"SET search_path TO {self.schema}")
            return await connection.fetch(query)
        finally:
            await connection.close()

    def settings(self, **changes: Json) -> Json:
        return engine_settings(
            self.server.url, self.postgres_url, self.prefix, self.schema, **changes
        )

    async def start(
        self, parent: Json, child: Json, *, ready: str, said: str, loses: bool = True
    ) -> str:
        """Start the parent; once the query `ready` gives a row, NATS goes away. Then what the
        engine has `said` is in the outbox alone; it is lost there if it `loses` it."""
        async with running(self.settings(child_sweep_seconds=3_600)):
            async with connected(self.server.url, self.prefix) as wire:
                await wire.deploy(child)
                await wire.deploy(parent)
                run_id = await wire.start("parent")
                await eventually(lambda: self.rows(ready))
            self.server.kill()
            where = f"WHERE subject LIKE '%.in.{said}.%'"
            await eventually(lambda: self.rows(f"SELECT id FROM outbox {where}"))
        if loses:
            await self.rows(f"DELETE FROM outbox {where}")
        self.server.start()
        return run_id


@pytest.fixture
def losses(own_jetstream: JetStreamServer, postgres_url: str, schema: str) -> Losses:
    return Losses(own_jetstream, postgres_url, schema)


WAITS = "SELECT path FROM step WHERE waiting_for = 'sleep'"
CHILD_WAITS = "SELECT step.path FROM step JOIN run ON run.id = step.run_id \
    WHERE step.waiting_for = 'sleep' AND run.workflow = 'child'"


async def test_a_start_that_was_committed_and_not_sent_is_sent_by_the_next_engine(
    losses: Losses,
) -> None:
    run_id = await losses.start(PARENT, CHILD, ready=WAITS, said="child-start", loses=False)
    async with (
        running(losses.settings(child_sweep_seconds=3_600)),
        connected(losses.server.url, losses.prefix) as wire,
    ):
        assert (await wire.result(run_id))["output"] == 5
        assert len((await wire.api("run.list", workflow="child"))["runs"]) == 1


@pytest.mark.parametrize("parent", [PARENT, LOOSE])
async def test_a_start_that_was_lost_is_asked_for_again(losses: Losses, parent: Json) -> None:
    run_id = await losses.start(parent, CHILD, ready=WAITS, said="child-start")
    async with (
        running(losses.settings(child_sweep_seconds=0.2)),
        connected(losses.server.url, losses.prefix) as wire,
    ):
        result = await wire.result(run_id)
        children = (await wire.api("run.list", workflow="child"))["runs"]
        assert len(children) == 1
        expected = 5 if parent is PARENT else {"run_id": children[0]["run_id"]}
        assert (result["status"], result["output"]) == ("completed", expected)


async def test_an_end_that_was_lost_is_told_again(losses: Losses) -> None:
    run_id = await losses.start(AT_ONCE, CHILD, ready=CHILD_WAITS, said="child-settled")
    async with (
        running(losses.settings(child_sweep_seconds=0.2)),
        connected(losses.server.url, losses.prefix) as wire,
    ):
        assert (await wire.result(run_id))["output"] == 5


async def test_a_child_that_nobody_waits_for_any_more_is_cancelled(losses: Losses) -> None:
    run_id = await losses.start(FAILING, SLEEPER, ready=CHILD_WAITS, said="child-cancel")
    async with (
        running(losses.settings(child_sweep_seconds=0.2)),
        connected(losses.server.url, losses.prefix) as wire,
    ):
        assert (await wire.result(run_id))["status"] == "failed"
        (child,) = (await wire.api("run.list", workflow="child"))["runs"]
        assert (await wire.result(child["run_id"]))["status"] == "cancelled"
        assert (await wire.run(child["run_id"]))["cancelled_by"] == f"run {run_id}"


async def test_a_server_that_lost_everything_holds_no_child_up(
    own_jetstream: JetStreamServer, losses: Losses
) -> None:
    async with (
        running(losses.settings(child_sweep_seconds=0.5)),
        connected(own_jetstream.url, losses.prefix) as wire,
    ):
        await wire.deploy(CHILD)
        await wire.deploy(AT_ONCE)
        runs = [await wire.start("parent") for _ in range(20)]
        own_jetstream.wipe()
        for run_id in runs:
            assert (await wire.result(run_id))["output"] == 5
        children = (await wire.api("run.list", workflow="child", limit=100))["runs"]
        assert len(children) == len(runs)
