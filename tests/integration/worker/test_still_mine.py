"""The check before an effect: the engine's word, asked for at that moment."""

import asyncio

from tests.integration.worker.conftest import Serving, worker_of
from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from towpath_worker import Context, TransportError, Worker


def checking(engine: EngineSide, url: str) -> Worker:
    # The worker itself asks only once, so that every other exchange is the task's.
    worker = worker_of(engine, url, heartbeat_interval_seconds=3_600)

    @worker.task("loop")
    async def loop(ctx: Context) -> bool:
        return await ctx.still_mine(timeout_seconds=30)

    @worker.task("thread")
    def thread(ctx: Context) -> bool:
        return ctx.still_mine_sync(timeout_seconds=30)

    @worker.task("told")
    async def told(ctx: Context) -> str:
        try:
            return str(await ctx.still_mine(timeout_seconds=1.0))
        except TransportError as error:
            return f"{type(error).__name__}: {error}"

    @worker.task("wrong")
    async def wrong(ctx: Context) -> bool:
        return ctx.still_mine_sync()

    return worker


async def test_a_live_attempt_is_told_that_it_is_its_own(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    async with serving(checking(engine, jetstream_url)):
        for task in ("loop", "thread"):
            token = await engine.dispatch(task)
            assert (await engine.end_of(token)).body["output"] is True
            assert token in engine.presences[-1]["tokens"]


async def test_a_revoked_attempt_hears_of_it_before_its_effect(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    async with serving(checking(engine, jetstream_url)):
        engine.verdict = "stale"
        token = await engine.dispatch("thread")
        await engine.all_acknowledged()
        assert engine.ends(token) == [], "a stale attempt reports nothing"
        engine.verdict = "cancel"
        token = await engine.dispatch("thread")
        assert (await engine.end_of(token)).body["output"] is False


async def test_without_an_answer_nothing_is_known_and_that_is_an_error(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    async with serving(checking(engine, jetstream_url)):
        await until(lambda: bool(engine.presences), "it serves")
        engine.verdict = "silence"
        output = (await engine.end_of(await engine.dispatch("told"))).body["output"]
        assert output.startswith("NoAnswerError: no answer on ")
        engine.verdict = "refusal"
        output = (await engine.end_of(await engine.dispatch("told"))).body["output"]
        assert "the engine refused" in output, "a refusal is no yes"


async def test_the_blocking_form_is_refused_in_the_event_loop(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    async with serving(checking(engine, jetstream_url)):
        async with asyncio.timeout(60):
            error = (await engine.end_of(await engine.dispatch("wrong"))).body["error"]
        assert "await still_mine() instead" in error["message"]
