"""Tasks that run in processes: at the top of a module, where a process finds them."""

import logging
import os
import signal
import time

from msgspec import Struct

from towpath_worker import ProcessContext, TerminalError, Worker, WorkerOptions

worker = Worker("inventory", options=WorkerOptions(process_grace_seconds=0.2))


class Job(Struct):
    n: int
    text: str = "x"


@worker.task("square", run_in="process")
def square(job: Job) -> dict[str, object]:
    return {"square": job.n**2, "pid": os.getpid()}


@worker.task("notes", run_in="process")
def notes(ctx: ProcessContext) -> str:
    ctx.heartbeat({"n": 1})
    ctx.progress(Job(2))
    ctx.set_metadata({"a": {"x": 1}})
    ctx.set_metadata({"a": {"y": None}})
    ctx.emit("made", {"n": 1})
    reserved = {"name": "any"}
    ctx.logger.info("from the %s", "context", extra=reserved)
    logging.getLogger("a.library").warning("from a library")
    return ctx.idempotency_key


@worker.task("refuse", run_in="process")
def refuse() -> None:
    raise TerminalError("no", type="Refused", details={"a": 1})


@worker.task("nan", run_in="process")
def nan() -> float:
    return float("nan")


@worker.task("crash", run_in="process")
def crash(ctx: ProcessContext) -> None:
    ctx.progress("halfway")
    ctx.logger.info("last words")
    os.kill(os.getpid(), signal.SIGKILL)


@worker.task("fork_and_leave", run_in="process")
def fork_and_leave(ctx: ProcessContext) -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    ctx.progress(pid)
    os._exit(3)


@worker.task("leave", run_in="process")
def leave() -> None:
    os._exit(3)


@worker.task("heed", run_in="process")
def heed(ctx: ProcessContext) -> str:
    ctx.progress("waiting")
    assert ctx.cancelled.wait_in_thread(60)
    return f"stopped: {ctx.cancelled.reason}"


@worker.task("ignore", run_in="process")
def ignore(ctx: ProcessContext) -> None:
    ctx.progress(os.getpid())
    time.sleep(600)


def decorated(function: object) -> object:
    """A decorator that leaves something else under the name."""
    return lambda: function


@worker.task("terminates_nobody", run_in="process")
def term() -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    return "still here"


hidden = Worker("hidden")


@decorated
@hidden.task("hidden", run_in="process")
def not_found_by_its_name() -> None: ...


@worker.task("stumble", run_in="process")
def stumble() -> None:
    raise KeyError("in the process")


class Unwritable:
    """Pydantic's and other libraries' classes may fail in any way when they are written."""

    __pydantic_validator__ = None

    def model_dump(self, **_: object) -> object:
        raise KeyError("half made")


@worker.task("unwritable", run_in="process")
def unwritable() -> object:
    return Unwritable()
