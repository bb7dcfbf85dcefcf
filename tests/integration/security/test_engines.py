"""Several engines with the printed rights share the work, and take over from a dead one."""

import asyncio
import json
import sys

from tests.support.engines import running
from tests.support.eventually import eventually, eventually_sync
from tests.support.processes import RealProcess
from tests.support.secured import Secured, one_step, serving
from towpath_engine.settings import Settings
from towpath_worker import Worker

RUNS = 32


def engine_process(settings: Settings) -> RealProcess:
    """`towpath serve` with these settings, by their variables."""
    environment = {
        f"TOWPATH_{name.upper()}": str(value)
        for name in Settings.__struct_fields__
        if (value := getattr(settings, name)) != getattr(Settings(), name)
    }
    return RealProcess([sys.executable, "-m", "towpath_engine", "serve"], environment=environment)


async def test_an_engine_takes_over_from_a_dead_one_with_its_own_rights(
    secured: Secured, postgres_url: str, schema: str
) -> None:
    settings = secured.settings(postgres_url, schema, lease_seconds=2.0, lease_tick_seconds=0.1)
    other = engine_process(settings)
    worker = Worker("mail", connection=secured.options("pool-mail"))
    worker.task("letter.send")(lambda: "sent")
    try:
        await asyncio.to_thread(eventually_sync, lambda: "engine_ready" in other.errors())
        async with (
            running(settings),
            secured.wire("operator") as operator,
            secured.wire("client") as client,
            serving(worker),
        ):
            await operator.deploy(one_step("letter", "mail", "letter.send"))
            nap = {"name": "nap", "sleep": "20ms"}
            await operator.deploy({"expressions": "cel/1", "workflow": "naps", "steps": [nap]})
            sent = [await client.start(w) for w in ("letter", "naps") for _ in range(RUNS)]
            other.kill()
            sent += [await client.start(w) for w in ("letter", "naps") for _ in range(RUNS)]
            for run_id in sent:
                assert (await client.result(run_id))["status"] == "completed"
            stream = f"{secured.prefix.upper()}_IN"

            async def all_taken() -> bool:
                async with secured.wire("engine") as engine:
                    answer = await engine.client.request(
                        f"$JS.API.STREAM.INFO.{stream}", b"", timeout=20
                    )
                return json.loads(answer.data)["state"]["messages"] == 0

            assert await eventually(all_taken), "nothing waits in a dead engine's partition"
    finally:
        other.close()
    assert secured.violations == []
