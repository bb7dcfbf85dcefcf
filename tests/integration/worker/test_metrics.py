"""What a process that serves several queues counts, as a scrape sees it."""

import asyncio
import urllib.request

import pytest

from tests.integration.worker.conftest import Serving, worker_of
from tests.support.engine_side import EngineSide
from tests.support.jetstream import free_port
from towpath_worker import Context, PrometheusMetrics, TerminalError


def samples(page: str) -> dict[str, float]:
    """Name with labels → value."""
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_attempts_are_counted_by_queue_task_and_how_they_ended(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)
    metrics = worker.metrics = PrometheusMetrics()
    running = asyncio.Event()

    @worker.task("good")
    async def good() -> None: ...

    @worker.task("bad")
    def bad() -> None:
        raise TerminalError("no")

    @worker.task("hang")
    async def hang(ctx: Context) -> None:
        running.set()
        await asyncio.Event().wait()

    async with serving(worker):
        for task in ("good", "good", "bad"):
            await engine.end_of(await engine.dispatch(task))
        token = await engine.dispatch("hang")
        await running.wait()
        seen = samples(metrics.page())
        assert seen['towpath_worker_attempts_running{queue="inventory",task="hang"}'] == 1
        assert seen['towpath_worker_slots{queue="inventory"}'] == 4
        engine.stale.append(token)
        await engine.all_acknowledged()
    seen = samples(metrics.page())
    for task, outcome, count in (
        ("good", "completed", 2),
        ("bad", "failed", 1),
        ("hang", "dropped", 1),
    ):
        labels = f'outcome="{outcome}",queue="inventory",task="{task}"'
        assert seen[f"towpath_worker_attempts_total{{{labels}}}"] == count
    assert seen['towpath_worker_attempt_seconds_count{queue="inventory",task="good"}'] == 2
    assert seen['towpath_worker_attempts_running{queue="inventory",task="hang"}'] == 0
    assert seen['towpath_worker_slots{queue="inventory"}'] == 0


async def test_a_scrape_is_answered_until_it_is_closed() -> None:
    metrics, port = PrometheusMetrics(), free_port()
    metrics.slots_set("inventory", 3)
    close = metrics.serve(port)
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        with await asyncio.to_thread(urllib.request.urlopen, url, timeout=60) as answer:
            page = answer.read().decode()
    finally:
        await asyncio.to_thread(close)
    assert samples(page)['towpath_worker_slots{queue="inventory"}'] == 3
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(urllib.request.urlopen, url, timeout=60)


def test_faults_of_the_connection_are_counted() -> None:
    metrics = PrometheusMetrics()
    metrics.connection_reset("inventory")
    metrics.report_unconfirmed("inventory")
    seen = samples(metrics.page())
    assert seen['towpath_worker_connection_resets_total{queue="inventory"}'] == 1
    assert seen['towpath_worker_reports_unconfirmed_total{queue="inventory"}'] == 1
