"""What the worker SDK's types must refuse: each line marked `error:` has exactly that error."""

from datetime import timedelta

from towpath_worker import Again, Client, Context, RetryAfter, TerminalError, Worker, WorkerOptions
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


Again(after="1s")  # error: reportArgumentType
RetryAfter("1s")  # error: reportArgumentType
TerminalError("m", details=timedelta(1))  # error: reportArgumentType
WorkerOptions(4)  # error: reportCallIssue
WorkerOptions(slotz=4)  # error: reportCallIssue


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
