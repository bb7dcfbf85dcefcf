"""What a worker reports about the ends a task can come to."""

import json
from datetime import timedelta

from tests.integration.worker.conftest import Serving, worker_of
from tests.support.engine_side import EngineSide
from towpath_protocol.codec import decode_report
from towpath_worker import Again, Context, RetryAfter

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


VALUES: list[object] = [
    None, False, 0, "", [], {}, 1.0, -0.0, 2**53 + 1, 10**40, "žluťoučký 🐎", {"a": [{"b": None}]},
]  # fmt: skip


async def test_any_json_value_goes_through_a_task_unchanged(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("echo")
    async def echo(anything: object) -> object:
        return anything

    async with serving(worker):
        for value in VALUES:
            report = await engine.end_of(await engine.dispatch("echo", value))
            assert report.kind == "step-completed"
            assert json.dumps(report.body["output"]) == json.dumps(value)


async def test_what_a_task_notes_in_its_context_goes_with_its_report(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("note")
    async def note(ctx: Context) -> None:
        ctx.set_metadata({"a": {"x": 1}, "gone": None})
        ctx.set_metadata({"a": {"y": 2}})
        ctx.emit("reserved", {"n": 1})
        ctx.logger.warning("only %d left", 3, extra={"sku": "A-1"})

    async with serving(worker):
        token = await engine.dispatch("note", traceparent=TRACE)
        report = await engine.end_of(token)
    assert report.body["metadata"] == {"a": {"x": 1, "y": 2}, "gone": None}
    assert report.body["events"] == [{"name": "reserved", "data": {"n": 1}}]
    (line,) = report.body["logs"]
    assert (line["level"], line["message"], line["fields"]) == (
        "warning", "only 3 left", {"sku": "A-1"},
    )  # fmt: skip
    assert report.headers["traceparent"] == TRACE


async def test_a_task_may_ask_to_run_again(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("poll")
    async def poll(ctx: Context) -> Again | str:
        return Again(after=timedelta(seconds=2)) if ctx.iteration == 0 else "ready"

    async with serving(worker):
        again = await engine.end_of(await engine.dispatch("poll"))
        done = await engine.end_of(await engine.dispatch("poll", iteration=1))
    assert (again.kind, again.body["again"]) == ("step-completed", {"after_ms": 2_000})
    assert (done.body["output"], "again" in done.body) == ("ready", False)


async def test_a_task_may_ask_to_be_tried_again_later(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("charge")
    def charge() -> None:
        raise RetryAfter(1.5, "gateway busy")

    async with serving(worker):
        report = await engine.end_of(await engine.dispatch("charge"))
    assert report.body["error"] == {
        "type": "RetryAfter", "message": "gateway busy", "retryable": True, "retry_after_ms": 1_500,
    }  # fmt: skip


async def test_any_other_exception_is_a_retryable_failure_with_its_stack(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("charge")
    async def charge() -> None:
        raise KeyError("card\0number")

    async with serving(worker):
        error = (await engine.end_of(await engine.dispatch("charge"))).body["error"]
    assert (error["type"], error["retryable"]) == ("KeyError", True)
    assert "\0" not in error["message"]
    assert 'raise KeyError("card' in error["stack"]


async def test_an_output_that_cannot_be_kept_is_a_clear_failure(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)
    outputs: dict[str, object] = {
        "nan": float("nan"), "object": object(), "nul": "a\0b", "large": "x" * 300_000,
    }  # fmt: skip

    @worker.task("make")
    async def make(name: str) -> object:
        return outputs[name]

    async with serving(worker):
        for name in outputs:
            error = (await engine.end_of(await engine.dispatch("make", name))).body["error"]
            expected = "TooLarge" if name == "large" else "InvalidOutput"
            assert (error["type"], error["retryable"]) == (expected, False)
            assert error["message"].startswith("output")


async def test_an_unknown_task_is_given_back(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)
    worker.task("known")(lambda: None)
    async with serving(worker):
        report = await engine.end_of(await engine.dispatch("unknown"))
        await engine.all_acknowledged()
    assert (report.kind, report.body["reason"]) == ("step-released", "unknown_task")


async def test_a_dispatch_that_is_none_is_terminated_and_the_next_one_runs(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)
    worker.task("known")(lambda: "fine")
    async with serving(worker):
        subject = f"{engine.prefix}.dispatch.inventory.2.{'0' * 8}.token"
        for garbage in (b"", b"{", b"\xff", b'{"v":1,"type":"step.dispatch"}', b"[]"):
            await engine.client.jetstream().publish(subject, garbage)
        report = await engine.end_of(await engine.dispatch("known"))
        await engine.all_acknowledged()
    assert report.body["output"] == "fine"
    assert {ack.split(b" ")[0] for ack in engine.acks} == {b"+TERM", b"+ACK"}


async def test_a_report_that_the_engine_would_refuse_is_a_failure_instead(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("wait")
    async def wait_long() -> Again:
        return Again(after=10**14)

    @worker.task("retry")
    def retry_later() -> None:
        raise RetryAfter(10**11, "in three thousand years")

    @worker.task("events")
    async def events(ctx: Context) -> None:
        for n in range(101):
            ctx.emit("made", n)

    async with serving(worker):
        for task, place in (("wait", "again.after_ms"), ("retry", "error.retry_after_ms")):
            report = await engine.end_of(await engine.dispatch(task))
            error = report.body["error"]
            assert (error["type"], error["retryable"]) == ("InvalidOutput", False)
            assert place in error["message"]
            decode_report(json.dumps(report.body).encode(), report.kind)
        error = (await engine.end_of(await engine.dispatch("events"))).body["error"]
        assert error["type"] == "InvalidOutput"
        assert "at most 100 events" in error["message"]
