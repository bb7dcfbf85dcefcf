"""Tasks in processes: what they may do, and what their ends do to an attempt."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
from msgspec import Raw

from tests.support.eventually import until
from tests.unit.worker.dispatches import a_dispatch
from tests.unit.worker.process_tasks import __name__ as worker_module
from tests.unit.worker.process_tasks import hidden, worker
from towpath_protocol.codec import encode
from towpath_worker import Context, ProcessContext, TaskTypeError, Worker
from towpath_worker.execution import Execution
from towpath_worker.outcomes import Completed, Dropped, Failed, Outcome
from towpath_worker.pipes import Call, Cancel, Done, Origin, Pipe, Progress
from towpath_worker.processes import PROGRAM, TaskProcesses
from towpath_worker.testing import run_task
from towpath_worker.threads import TaskThreads
from towpath_worker.values import from_json


class Bench:
    """Attempts in processes, side by side."""

    def __init__(self) -> None:
        self.threads = TaskThreads()
        self.processes = TaskProcesses(self.threads, worker.options)
        self.execution = Execution(self.threads, worker.options, self.processes)

    def begin(self, name: str, raw: bytes = b"null") -> "tuple[asyncio.Task[Outcome], Context]":
        task = worker.registry.get(name)
        assert task is not None
        ctx = Context(
            a_dispatch(input=Raw(raw)),
            options=worker.options,
            loop=asyncio.get_running_loop(),
            on_heartbeat=lambda: None,
        )
        return asyncio.create_task(self.execution.run(task, ctx, raw)), ctx

    async def run(self, name: str, raw: bytes = b"null") -> Outcome:
        attempt, _ = self.begin(name, raw)
        async with asyncio.timeout(120):
            return await attempt

    async def output(self, name: str, raw: bytes = b"null") -> Any:
        outcome = await self.run(name, raw)
        assert isinstance(outcome, Completed), outcome
        return from_json(outcome.output)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.processes.close()
    made.threads.close()


async def test_a_task_runs_in_a_process_that_is_kept_for_the_next(bench: Bench) -> None:
    first = await bench.output("square", b'{"n":7}')
    second = await bench.output("square", b'{"n":8}')
    assert (first["square"], second["square"]) == (49, 64)
    assert first["pid"] == second["pid"] != os.getpid()


async def test_attempts_run_side_by_side_in_processes_of_their_own(bench: Bench) -> None:
    waiting, ctx = bench.begin("heed")
    await until(lambda: ctx.taken().progress is not None, "it runs")
    assert (await bench.output("square", b'{"n":3}'))["square"] == 9
    ctx.cancelled.set("enough")
    assert await waiting == Completed(output=b'"stopped: enough"')


async def test_what_a_task_notes_in_its_process_is_noted_by_the_worker() -> None:
    outcome = await run_task(worker, "notes", key="k")
    assert outcome.completed, outcome
    assert (outcome.metadata, outcome.progress) == (
        {"a": {"x": 1, "y": None}}, {"n": 2, "text": "x"},
    )  # fmt: skip
    assert (outcome.heartbeats, outcome.events) == (1, (("made", {"n": 1}),))
    assert list(outcome.logs) == ["from the context", "from a library"]


async def test_its_failures_are_those_of_any_task(bench: Bench) -> None:
    refused = await bench.run("refuse")
    assert refused == Failed(
        type="Refused", message="no", retryable=False, details=b'{"a":1}', stack=None
    )
    for name, raw, kind in (
        ("square", b'{"n":"x"}', "InvalidInput"),
        ("nan", b"1", "InvalidOutput"),
    ):
        failed = await bench.run(name, raw)
        assert isinstance(failed, Failed)
        assert (failed.type, failed.retryable) == (kind, False)


async def test_its_stack_begins_at_the_task_too(bench: Bench) -> None:
    outcome = await bench.run("stumble")
    assert isinstance(outcome, Failed)
    assert (outcome.stack or "").splitlines()[1].endswith("in stumble")


async def test_an_output_that_fails_while_it_is_written_is_no_crash(bench: Bench) -> None:
    outcome = await bench.run("unwritable")
    assert isinstance(outcome, Failed)
    assert (outcome.type, outcome.retryable) == ("InvalidOutput", False)
    assert "half made" in outcome.message


@pytest.mark.parametrize(("name", "code"), [("crash", -9), ("leave", 3)])
async def test_a_crash_fails_the_attempt_retryably_and_the_next_one_runs(
    bench: Bench, name: str, code: int
) -> None:
    await bench.output("square", b'{"n":1}')
    attempt, ctx = bench.begin(name)
    failed = await attempt
    assert isinstance(failed, Failed)
    assert (failed.type, failed.retryable) == ("ProcessCrashed", True)
    assert f"exit code {code}" in failed.message
    if name == "crash":
        assert ctx.taken().progress == b'"halfway"'
        assert [line.message for line in ctx.log.lines()] == ["last words"]
    assert (await bench.output("square", b'{"n":5}'))["square"] == 25


async def test_a_crash_is_noticed_although_something_forked_lives_on(bench: Bench) -> None:
    attempt, ctx = bench.begin("fork_and_leave")
    async with asyncio.timeout(120):
        outcome = await attempt
    forked = int(ctx.taken().progress or b"0")
    os.kill(forked, signal.SIGKILL)
    assert isinstance(outcome, Failed)
    assert (outcome.type, outcome.retryable) == ("ProcessCrashed", True)


async def test_a_task_that_does_not_stop_is_killed_with_its_process(bench: Bench) -> None:
    for reason, expected in (
        ("the run was cancelled", Failed(
            type="Cancelled", message="the run was cancelled", retryable=False
        )),
        ("attempt_timeout", Dropped(why="attempt_timeout")),
    ):  # fmt: skip
        attempt, ctx = bench.begin("ignore")
        await until(lambda ctx=ctx: ctx.taken().progress is not None, "it runs")
        pid = int(ctx.taken().progress or b"0")
        ctx.cancelled.set(reason)
        async with asyncio.timeout(60):
            assert await attempt == expected
        assert not psutil.pid_exists(pid)


async def test_signals_to_the_whole_group_do_not_end_what_the_worker_still_waits_for(
    bench: Bench,
) -> None:
    assert await bench.output("terminates_nobody") == "still here"


async def test_closing_ends_what_runs_and_what_waits(bench: Bench) -> None:
    idle = (await bench.output("square", b'{"n":1}'))["pid"]
    attempt, ctx = bench.begin("ignore")
    await until(lambda: ctx.taken().progress is not None, "it runs")
    pids = [idle, int(ctx.taken().progress or b"0")]
    bench.processes.close()
    async with asyncio.timeout(60):
        await attempt
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_a_task_that_its_process_would_not_find_keeps_the_worker_from_serving() -> None:
    with pytest.raises(TaskTypeError, match=r"hidden.*not_found_by_its_name.*stands for something"):
        await hidden.serve()


def test_what_cannot_run_in_a_process_is_refused_when_it_is_registered() -> None:
    process: Any = Worker("q").task("a", run_in="process")

    async def coroutine() -> None: ...
    def local(ctx: ProcessContext) -> None: ...

    unnamed: Any = eval("lambda: None")
    for function, words in (
        (coroutine, "async def"),
        (local, "at the top of a module"),
        (unnamed, "at the top of a module"),
        (full_context, "annotate its context as ProcessContext"),
    ):
        with pytest.raises(TaskTypeError, match=words):
            process(function)


def full_context(ctx: Context) -> None: ...


def test_who_comes_after_a_cancelled_attempt_is_not_told_to_stop() -> None:
    """The order to stop was on its way while the process took the next attempt."""
    ours, theirs = Pipe.pair()
    origin = Origin(paths=tuple(sys.path), main_module=None, main_path=None)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(theirs.fileno()), encode(origin).decode()],
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    call = Call(
        token="t-2",
        name="heed",
        module=worker_module,
        qualname="heed",
        dispatch=encode(a_dispatch("t-2")),
        options=worker.options,
    )
    try:
        ours.send(call)
        assert isinstance(ours.next_note(), Progress), "it runs"
        ours.send(Cancel("t-1", "not meant for it"))
        ours.send(Cancel("t-2", "meant for it"))
        assert ours.next_note() == Done(Completed(output=b'"stopped: meant for it"'))
    finally:
        process.kill()
        process.wait()
        ours.close()
