import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from towpath_engine.logs import configure_logs
from towpath_engine.secrets import masker
from towpath_engine.settings import LogFormat


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_its_keys() -> None:
    out = io.StringIO()
    configure_logs(stream=out)
    structlog.get_logger("towpath_engine.x").info("step_dispatched", run_id="r", step="näh\n")
    (line,) = lines(out)
    assert line["event"] == "step_dispatched"
    assert (line["run_id"], line["step"], line["level"]) == ("r", "näh\n", "info")
    assert line["logger"] == "towpath_engine.x"
    assert line["timestamp"].endswith("Z")


def test_records_of_libraries_leave_in_the_same_form() -> None:
    out = io.StringIO()
    configure_logs(stream=out)
    logging.getLogger("nats.aio.client").warning("lost %s", "it", extra={"attempt": 2})
    (line,) = lines(out)
    assert (line["event"], line["logger"], line["attempt"]) == ("lost it", "nats.aio.client", 2)


def test_an_exception_is_in_the_line_and_not_below_it() -> None:
    out = io.StringIO()
    configure_logs(stream=out)
    try:
        int("broken")
    except ValueError:
        structlog.get_logger("x").exception("tick_failed")
    (line,) = lines(out)
    assert "ValueError: invalid literal" in line["exception"]


def test_what_is_below_the_level_is_not_written() -> None:
    out = io.StringIO()
    configure_logs(level="warning", stream=out)
    structlog.get_logger("x").info("step_dispatched")
    logging.getLogger("x").info("chatter")
    assert out.getvalue() == ""


def test_libraries_talk_only_when_something_is_wrong() -> None:
    out = io.StringIO()
    configure_logs(level="debug", stream=out)
    logging.getLogger("asyncpg").info("chatter")
    structlog.get_logger("x").debug("batch_committed")
    assert [line["event"] for line in lines(out)] == ["batch_committed"]


def test_the_console_format_is_text() -> None:
    out = io.StringIO()
    configure_logs(log_format="console", stream=out)
    structlog.get_logger("x").info("step_dispatched", run_id="r")
    assert "step_dispatched" in out.getvalue()
    assert "run_id=r" in out.getvalue()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_line_holds_a_secret_not_even_a_traceback(log_format: LogFormat) -> None:
    out = io.StringIO()
    configure_logs(log_format=log_format, stream=out, mask=masker(["s3cr3t-one"]))
    password = "s3cr3t-one"
    try:
        raise ValueError(f"bad login {password}")  # noqa: TRY301 - any error will do
    except ValueError:
        structlog.get_logger("x").exception("tick_failed", url="nats://me:s3cr3t-two@a:4222")
    logging.getLogger("asyncpg").error("no login as %s", {"password": password})
    assert out.getvalue().count("***") >= 3
    assert "s3cr3t" not in out.getvalue()
