"""What libraries log during an attempt is in the attempt's log, and nobody else's."""

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator

import pytest
import structlog

from towpath_worker import Context, Worker, capture, capture_structlog
from towpath_worker.logs import AttemptLog
from towpath_worker.testing import run_task

library = logging.getLogger("a.library")
worker = Worker("inventory")


@worker.task("loop")
async def loop(word: str) -> None:
    library.warning("begin %s", word)
    await asyncio.sleep(0)
    await asyncio.gather(deeper(word), asyncio.to_thread(library.warning, "thread of %s", word))


async def deeper(word: str) -> None:
    library.warning("deeper %s", word)


@worker.task("thread")
def thread(word: str, ctx: Context) -> None:
    library.warning("plain %s", word, extra={"sku": word})
    ctx.logger.info("own %s", word)
    try:
        dict[str, int]()[word]
    except KeyError:
        library.exception("it failed")


@pytest.fixture
def log() -> Iterator[AttemptLog]:
    made = AttemptLog(10_000)
    capture.install()
    with capture.into(made):
        yield made
    capture.uninstall()


async def test_attempts_side_by_side_keep_their_lines_apart() -> None:
    first, second = await asyncio.gather(
        run_task(worker, "loop", "one"), run_task(worker, "loop", "two")
    )
    assert sorted(first.logs) == ["begin one", "deeper one", "thread of one"]
    assert sorted(second.logs) == ["begin two", "deeper two", "thread of two"]


async def test_a_plain_function_in_its_thread_is_captured_with_its_traceback() -> None:
    outcome = await run_task(worker, "thread", "A-1")
    plain, own, failed = outcome.logs
    assert (plain, own) == ("plain A-1", "own A-1")
    assert failed.startswith("it failed\nTraceback")
    assert "KeyError: 'A-1'" in failed


def test_level_logger_and_extra_fields_go_along(log: AttemptLog) -> None:
    library.error("out of %s", "stock", extra={"sku": "A", "odd": object()})
    library.debug("not let through by the logger's level")
    (line,) = log.lines()
    assert (line.level, line.message) == ("error", "out of stock")
    assert line.fields is not None
    assert b'"logger":"a.library"' in bytes(line.fields)
    assert b'"sku":' in bytes(line.fields)


def test_lines_that_cannot_be_formatted_are_kept_as_they_are(log: AttemptLog) -> None:
    record = library.makeRecord("a.library", logging.ERROR, "", 0, "no %d", ("number",), None)
    for handler in logging.getLogger().handlers:
        if type(handler).__module__ == "towpath_worker.capture":
            handler.handle(record)
    (line,) = log.lines()
    assert "no %d" in line.message


def test_what_the_sdk_says_about_itself_is_no_line_of_an_attempt(log: AttemptLog) -> None:
    logging.getLogger("towpath.worker.transport").error("nats is away")
    assert log.lines() == ()


def test_outside_of_an_attempt_nothing_is_captured(log: AttemptLog) -> None:
    other = threading.Thread(target=lambda: library.warning("a thread of its own"))
    other.start()
    other.join()
    assert log.lines() == ()


def test_a_program_without_logging_still_sees_its_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    last = logging.StreamHandler(sys.stderr)
    last.setLevel(logging.WARNING)
    monkeypatch.setattr(logging, "lastResort", last)
    capture.install()
    library.warning("somebody should see this")
    library.info("nobody asked")
    capture.uninstall()
    assert capsys.readouterr().err == "somebody should see this\n"
    assert logging.getLogger().handlers == []


def test_events_of_structlog_are_captured_by_a_processor(log: AttemptLog) -> None:
    lines: list[object] = []

    def swallow(_logger: object, _method: str, event: object) -> str:
        lines.append(event)
        return ""

    logger = structlog.wrap_logger(
        structlog.PrintLogger(),
        processors=[structlog.processors.add_log_level, capture_structlog, swallow],
    )
    logger.warning("stock_low", sku="A-1", left=3)
    try:
        int("empty")
    except ValueError:
        logger.exception("stock_gone")
    low, gone = log.lines()
    assert (low.level, low.message, bytes(low.fields or b"")) == (
        "warning", "stock_low", b'{"sku":"A-1","left":3}',
    )  # fmt: skip
    assert "ValueError: invalid literal" in gone.message
    assert len(lines) == 2, "the event goes on to the next processor"
