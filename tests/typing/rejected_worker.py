"""What the worker SDK's types must refuse: each line marked `error:` has exactly that error."""

from datetime import timedelta

from towpath_worker import (
    Again,
    Client,
    ConnectionOptions,
    Context,
    ProcessContext,
    RetryAfter,
    TerminalError,
    Worker,
    WorkerOptions,
    run_workers,
)
from towpath_worker.workflow import task, wait, workflow

worker = Worker("inventory")


@worker.task("a")  # error: reportArgumentType
def three(one: int, two: str, ctx: Context) -> None: ...


@worker.task("b")  # error: reportArgumentType
async def second_is_no_context(order: int, other: int) -> None: ...


@worker.task  # error: reportArgumentType
def name_forgotten() -> None: ...


@worker.task("d")
async def reads(ctx: Context) -> None:
    ctx.heartbeat({"a": object()})  # error: reportArgumentType
    del ctx.attempts  # error: reportAttributeAccessIssue
    ctx.set_metadata(["no", "object"])  # error: reportArgumentType


class Pool: ...


def no_lifespan() -> int:
    return 1


def wants_more(name: str) -> Pool:
    return Pool()


Worker("e", lifespan=no_lifespan)  # error: reportArgumentType
worker.lifespan(wants_more)  # error: reportArgumentType


@worker.task("f")
async def uses(ctx: Context[Pool]) -> None:
    del ctx.state.connection  # error: reportAttributeAccessIssue
    ctx.progress(object())  # error: reportArgumentType
    ctx.progress({"f": len})  # error: reportArgumentType
    n: int = ctx.last_progress_as(str)  # error: reportAssignmentType
    if ctx.still_mine():  # error: reportUnnecessaryComparison
        del n


@worker.task("g")
async def without_state(ctx: Context) -> None:
    del ctx.state.connection  # error: reportAttributeAccessIssue


@worker.task("h", run_in="process")  # error: reportArgumentType
def full_context(order: int, ctx: Context) -> None: ...


@worker.task("i", run_in="process")
def narrow(ctx: ProcessContext) -> None:
    del ctx.state  # error: reportAttributeAccessIssue
    del ctx.still_mine_sync  # error: reportAttributeAccessIssue
    del ctx.cancelled.wait  # error: reportAttributeAccessIssue


Again(after="1s")  # error: reportArgumentType
RetryAfter("1s")  # error: reportArgumentType
TerminalError("m", details=timedelta(1))  # error: reportArgumentType
WorkerOptions(4)  # error: reportCallIssue
WorkerOptions(slotz=4)  # error: reportCallIssue
ConnectionOptions(creds="u.creds")  # error: reportCallIssue
ConnectionOptions(nkey_seed_file=7)  # error: reportArgumentType
run_workers("inventory")  # error: reportArgumentType
Worker("q", 4)  # error: reportCallIssue


async def start() -> None:
    client = Client()
    await client.start(1)  # error: reportArgumentType
    await client.start("order", {}, "key")  # error: reportCallIssue
    await client.signal("order", key="k")  # error: reportCallIssue
    handle = await client.start("order")
    number: int = await handle.result(type=str)  # error: reportAssignmentType
    workflow("order")  # error: reportCallIssue
    task("a", "b")  # error: reportCallIssue
    task("a", task="b", wehn="true")  # error: reportCallIssue
    wait("a", signal="s", limit="3")  # error: reportArgumentType
    del number
