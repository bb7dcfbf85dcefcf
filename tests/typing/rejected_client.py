"""What the client's types must refuse: each line marked `error:` has exactly that error."""

from towpath_worker import Client, StartItem, SyncClient

Client("nats://example:4222")  # error: reportCallIssue
Client(url="nats://example:4222")  # error: reportCallIssue
Client(timeout_seconds="30")  # error: reportArgumentType
StartItem("order")  # error: reportCallIssue
StartItem(workflow="order", priority="urgent")  # error: reportArgumentType


async def asynchronous() -> None:
    client = Client()
    await client.start(1)  # error: reportArgumentType
    await client.start("order", {}, "key")  # error: reportCallIssue
    await client.start("order", tag=["a"])  # error: reportCallIssue
    await client.start_many("order")  # error: reportArgumentType
    await client.signal("order", key="k")  # error: reportCallIssue
    await client.list("order")  # error: reportGeneralTypeIssues
    for _ in client.list("order"):  # error: reportGeneralTypeIssues
        pass
    handle = await client.start("order")
    number: int = await handle.result(type=str)  # error: reportAssignmentType
    await handle.result(type="Order")  # error: reportArgumentType
    await handle.result(60)  # error: reportCallIssue
    await handle.redrive()  # error: reportCallIssue
    await handle.retry("ship")  # error: reportCallIssue
    await handle.pause("stocktaking")  # error: reportCallIssue
    await client.purge("order", settled_before="2026-01-01")  # error: reportArgumentType
    del number


def blocking() -> None:
    client = SyncClient()
    client.start("order", {}, "key")  # error: reportCallIssue
    client.start("order", kee="k")  # error: reportCallIssue
    handle = client.start("order")
    handle.redrive()  # error: reportCallIssue
    number: int = handle.result(type=str)  # error: reportAssignmentType
    for _ in client.workers(1):  # error: reportArgumentType
        pass
    del number
