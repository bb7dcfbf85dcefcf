"""Every line that a task logs says on the worker's own output which attempt it belongs to."""

import io
import json
import logging
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager

import pytest
import structlog

from tests.unit.worker import process_tasks
from towpath_worker import Context, Worker, capture_structlog
from towpath_worker.command import CommandExit, main
from towpath_worker.log_output import LogFormat, formatter
from towpath_worker.testing import run_task

library = logging.getLogger("a.library")
worker = Worker("inventory")


@worker.task("loop")
async def loop(ctx: Context) -> str:
    ctx.logger.warning("own", extra={"sku": "A"})
    library.warning("of a library", extra={"step": "its own"})
    return ctx.run_id


@worker.task("thread")
def thread(ctx: Context) -> str:
    try:
        dict[str, int]()["A"]
    except KeyError:
        library.exception("it failed\nbadly")
    return ctx.run_id


@contextmanager
def output(log_format: LogFormat) -> Generator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(log_format))
    logging.getLogger().addHandler(handler)
    try:
        yield stream
    finally:
        logging.getLogger().removeHandler(handler)
    assert handler.filters == [], "nothing of ours stays behind"


async def test_a_plain_line_ends_with_the_attempt() -> None:
    with output(LogFormat.CONSOLE) as stream:
        run_id = (await run_task(worker, "loop", attempt=3)).output
        library.warning("outside")
    own, other, outside = stream.getvalue().splitlines()
    assert own.endswith(f"WARNING own run_id={run_id} step=step attempt=3")
    assert other.endswith(f"of a library run_id={run_id} step=its own attempt=3")
    assert outside.endswith("WARNING outside")


async def test_it_stands_before_the_traceback() -> None:
    with output(LogFormat.CONSOLE) as stream:
        run_id = (await run_task(worker, "thread")).output
    _, message, head, *_, last = stream.getvalue().splitlines()
    assert message == f"badly run_id={run_id} step=step attempt=1"
    assert (head[:9], last) == ("Traceback", "KeyError: 'A'")


async def test_a_json_line_has_it_in_fields() -> None:
    with output(LogFormat.JSON) as stream:
        run_id = (await run_task(worker, "loop")).output
        await run_task(worker, "thread")
    own, other, failed = (json.loads(line) for line in stream.getvalue().splitlines())
    assert own["timestamp"].endswith("+00:00")
    assert own["event"] == "own"
    assert (own["run_id"], own["step"], own["attempt"], own["sku"]) == (run_id, "step", 1, "A")
    assert (other["logger"], other["run_id"], other["step"]) == ("a.library", run_id, "its own")
    assert failed["exception"].startswith("Traceback")


def test_a_json_line_can_carry_what_no_json_can() -> None:
    extra: dict[str, object] = {"level": "mine", "what": object()}
    record = library.makeRecord(
        "a.library", logging.WARNING, __file__, 1, "odd \ud800 %s", ("thing",), None, extra=extra
    )
    odd = json.loads(formatter(LogFormat.JSON).format(record))
    assert (odd["event"], odd["level"]) == ("odd ? thing", "warning")
    assert "object at" in odd["what"]


async def test_lines_of_a_task_in_a_process_have_it_too() -> None:
    with output(LogFormat.JSON) as stream:
        outcome = await run_task(process_tasks.worker, "notes", attempt=2)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = {line["event"]: line for line in lines}
    assert outcome.output is not None
    line = told["from a library"]
    assert (f"{line['run_id']}/step/0", line["attempt"]) == (outcome.output, 2)
    assert line["logger"] == "a.library"


async def test_the_runs_log_does_not_repeat_what_run_it_is() -> None:
    fields: list[bytes] = []
    own = Worker("own")

    @own.task("look")
    def look(ctx: Context) -> None:
        library.warning("a line", extra={"sku": "A"})
        fields.extend(bytes(line.fields or b"") for line in ctx.log.lines())

    with output(LogFormat.JSON):
        await run_task(own, "look")
    assert fields == [b'{"logger":"a.library","sku":"A"}']


async def test_an_event_of_structlog_goes_on_with_it() -> None:
    own = Worker("own")
    seen: list[dict[str, object]] = []

    def swallow(_logger: object, _method: str, event: MutableMapping[str, object]) -> str:
        seen.append(dict(event))
        return ""

    @own.task("tell")
    async def tell() -> None:
        structlog.wrap_logger(
            structlog.PrintLogger(), processors=[capture_structlog, swallow]
        ).warning("stock_low", step="its own")

    await run_task(own, "tell", attempt=2)
    assert (seen[0]["step"], seen[0]["attempt"]) == ("its own", 2)
    assert "run_id" in seen[0]


def test_a_format_that_is_none_is_a_wrong_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOWPATH_LOG_FORMAT", "xml")
    assert main(["shop:worker"]) == CommandExit.USAGE
    assert "TOWPATH_LOG_FORMAT must be console or json, not 'xml'" in capsys.readouterr().err
