"""What a task can read and note."""

import asyncio
import logging
import threading
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tests.support.eventually import until
from tests.unit.worker.dispatches import a_dispatch
from towpath_protocol.dispatch import CompensationOf
from towpath_protocol.failures import Failure
from towpath_worker import Compensation, Context, InvalidValueError, WorkerOptions


def a_context(*, bytes_max: int = 64 * 1024, **fields: Any) -> tuple[Context, list[int]]:
    beats: list[int] = []
    ctx = Context(
        a_dispatch(**fields),
        options=WorkerOptions(logs_bytes_max=bytes_max),
        loop=asyncio.get_running_loop(),
        on_heartbeat=lambda: beats.append(1),
    )
    return ctx, beats


async def test_the_facts_of_the_dispatch_are_there() -> None:
    ctx, _ = a_context(
        attempt=2,
        max_attempts=5,
        key="o-1",
        context=Raw(b'{"tenant":"t"}'),
        metadata=Raw(b'{"n":1}'),
        deadline="2026-11-30T00:00:00.000000Z",
        last_error=Failure(type="E", message="m", details=Raw(b'{"a":1}')),
        last_progress=Raw(b"[1,2]"),
    )
    assert (ctx.attempt, ctx.max_attempts, ctx.key, ctx.step) == (2, 5, "o-1", "reserve")
    assert (dict(ctx.context), dict(ctx.metadata)) == ({"tenant": "t"}, {"n": 1})
    assert ctx.deadline == datetime(2026, 11, 30, tzinfo=UTC)
    assert ctx.last_progress == [1, 2]
    assert ctx.last_error is not None
    assert (ctx.last_error.type, ctx.last_error.details) == ("E", {"a": 1})


async def test_an_attempt_that_undoes_knows_what_and_why() -> None:
    error = Raw(b'{"type":"OutOfStock","message":"none left","details":[1]}')
    undone = CompensationOf(step="lines[3]/reserve", output=Raw(b'{"id":7}'), error=error)
    ctx, _ = a_context(compensation=undone)
    assert ctx.compensation is not None
    assert (ctx.compensation.step, ctx.compensation.output) == ("lines[3]/reserve", {"id": 7})
    assert ctx.compensation.error is not None
    assert ctx.compensation.error["type"] == "OutOfStock"


async def test_an_undo_after_a_cancel_has_no_error_and_other_attempts_undo_nothing() -> None:
    ctx, _ = a_context(compensation=CompensationOf(step="reserve", output=Raw(b"null")))
    assert ctx.compensation == Compensation(step="reserve", output=None, error=None)
    ctx, _ = a_context()
    assert ctx.compensation is None


async def test_a_heartbeat_of_a_thread_arrives_in_the_loop_with_its_progress() -> None:
    ctx, beats = a_context()
    thread = threading.Thread(target=lambda: ctx.heartbeat({"n": 1}))
    thread.start()
    thread.join()
    await until(lambda: bool(beats), "the heartbeat arrives")
    assert ctx.taken().progress == b'{"n":1}'


async def test_metadata_patches_add_up_as_one_patch() -> None:
    ctx, _ = a_context()
    assert ctx.taken().metadata is None
    ctx.set_metadata({"a": {"x": 1, "y": 2}, "b": 1})
    ctx.set_metadata({"a": {"y": None}, "b": None, "c": [1]})
    assert msgspec.json.decode(ctx.taken().metadata or b"") == {
        "a": {"x": 1, "y": None}, "b": None, "c": [1],
    }  # fmt: skip


async def test_values_over_their_limit_are_refused_and_change_nothing() -> None:
    ctx, _ = a_context()
    ctx.set_metadata({"a": 1})
    with pytest.raises(InvalidValueError, match="metadata"):
        ctx.set_metadata({"a": "x" * 70_000})
    with pytest.raises(InvalidValueError, match="progress"):
        ctx.heartbeat("x" * 20_000)
    with pytest.raises(InvalidValueError, match="data"):
        ctx.emit("e", "x" * 2_000)
    notes = ctx.taken()
    assert (notes.metadata, notes.progress, notes.events) == (b'{"a":1}', None, ())


async def test_the_log_keeps_the_newest_lines_and_marks_what_was_cut() -> None:
    ctx, _ = a_context(bytes_max=4_096)
    for n in range(1_000):
        ctx.logger.info("line %d", n)
    lines = ctx.taken().log.lines()
    assert len(msgspec.json.encode(lines)) <= 4_096
    assert lines[-1].message == "line 999"
    cut = 1_000 - (len(lines) - 1)
    assert lines[0].message == f"[{cut} earlier lines were cut]"


async def test_a_line_larger_than_the_log_is_cut_itself() -> None:
    ctx, _ = a_context(bytes_max=4_096)
    ctx.logger.info("é\0\ud800" * 100_000)
    (line,) = ctx.taken().log.lines()
    assert line.message.endswith("[line cut]")
    assert len(msgspec.json.encode(line)) <= 4_096
    assert "\0" not in line.message


async def test_log_calls_never_fail_for_what_they_are_given() -> None:
    ctx, _ = a_context()
    ctx.logger.info("no such %d", "number", extra={"odd": object()})
    ctx.logger.debug("quiet")
    try:
        dict[str, int]()["k"]
    except KeyError:
        ctx.logger.exception("it failed")
    first, second, third = ctx.taken().log.lines()
    assert "no such" in first.message
    assert (second.level, third.level) == ("debug", "error")
    assert "KeyError" in third.message


async def test_log_lines_are_ordinary_records_too(caplog: pytest.LogCaptureFixture) -> None:
    ctx, _ = a_context()
    with caplog.at_level(logging.INFO, "towpath.task"):
        ctx.logger.info("hello", extra={"sku": "A"})
    (record,) = caplog.records
    assert (record.name, record.filename) == (
        "towpath.task.inventory.reserve", "test_context.py",
    )  # fmt: skip
    assert record.__dict__["step"] == "reserve"
    assert record.__dict__["sku"] == "A"
