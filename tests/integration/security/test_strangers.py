"""A pool that knows everything, another queue's tokens included, can do nothing to its steps.

What the server refuses openly, it logs; in the form of accounts a stranger's messages go nowhere
without a word. So the proof is in what does not change: runs, streams, dead letters.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import nats.errors

from tests.support.secured import Secured, one_step
from tests.support.wire_client import WireClient
from towpath_protocol.subjects import InKind

Json = Any


async def info(secured: Secured, call: str) -> Json:
    """What the JetStream API tells the engine's user."""
    async with secured.wire("engine") as engine:
        answer = await engine.client.request(f"$JS.API.{call}", b"", timeout=20)
    return json.loads(answer.data)


async def stored(secured: Secured) -> dict[str, int]:
    """The last sequence of each stream: it moves with every message that is stored."""
    prefix = secured.prefix.upper()
    names = [f"{prefix}_{name}" for name in ("DISPATCH", "IN", "ADV", "EVENTS")]
    return {
        name: (await info(secured, f"STREAM.INFO.{name}"))["state"]["last_seq"] for name in names
    }


async def settle_down(client: WireClient) -> None:
    """A round trip through the server and the engine: what was sent before has been handled."""
    await client.api("run.list", limit=1)


class Victim:
    """A run of queue `billing` whose step is dispatched, pulled and not acknowledged."""

    def __init__(self, run_id: str, dispatch: Json, ack_subject: str, history: Json) -> None:
        self.run_id = run_id
        self.dispatch = dispatch
        self.ack_subject = ack_subject
        self.history = history


async def victim(secured: Secured, operator: WireClient, client: WireClient) -> Victim:
    await operator.deploy(one_step("bill", "billing", "bill.send"))
    await operator.deploy(one_step("letter", "mail", "letter.send"))
    run_id = await client.start("bill")
    async with secured.wire("pool-billing") as pool:
        dispatch, message = await pool.pull("billing")
    # The engine sees that it was delivered; then nothing moves by itself.
    await client.step_in(run_id, "only", "running")
    history = await client.history(run_id)
    return Victim(run_id, dispatch, message.reply, history)


async def attempts(stranger: Any, subjects: Sequence[str], body: bytes = b"{}") -> list[bytes]:
    """Ask each of these subjects and collect whatever is answered."""
    answers: list[bytes] = []
    inbox = stranger.new_inbox()

    async def on_answer(message: Any) -> None:
        if message.data:
            answers.append(message.data)

    await stranger.subscribe(inbox, cb=on_answer)
    for subject in subjects:
        await stranger.publish(subject, body, reply=inbox)
    await stranger.flush()
    return answers


async def test_another_queues_step_is_neither_ended_nor_pulled_nor_acknowledged(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    bill = await victim(secured, operator, client)
    prefix, stream = secured.prefix, f"{secured.prefix.upper()}_DISPATCH"
    place = f"billing.{bill.run_id}.{bill.dispatch['token']}"
    before = await stored(secured)
    async with secured.wire("pool-mail") as stranger:
        reports = [f"{prefix}.in.{kind}.{place}" for kind in InKind if kind.startswith("step-")]
        dispatch = f"{prefix}.dispatch.billing.2.{bill.run_id}.{bill.dispatch['token']}"
        pulls = [f"$JS.API.CONSUMER.MSG.NEXT.{stream}.billing_p{level}" for level in range(4)]
        body = json.dumps({"output": "forged", "error": {"type": "X", "message": "x"}}).encode()
        answers = await attempts(stranger.client, [*reports, dispatch], body)
        answers += await attempts(stranger.client, pulls, b'{"batch":10,"expires":1000000000}')
        for ack in (b"+ACK", b"+TERM", b"-NAK"):
            answers += await attempts(stranger.client, [bill.ack_subject], ack)
        heartbeat = {"worker_id": "s", "tokens": [bill.dispatch["token"]]}
        answers += await attempts(
            stranger.client, [f"{prefix}.heartbeat.billing"], json.dumps(heartbeat).encode()
        )
        await settle_down(client)
    assert answers == []
    assert await stored(secured) == before
    assert await client.history(bill.run_id) == bill.history
    assert await operator.dead_letters() == []
    # The delivery is still the victim's: nobody has ended it.
    consumer = await info(secured, f"CONSUMER.INFO.{stream}.billing_p2")
    assert consumer["num_ack_pending"] == 1
    async with secured.wire("pool-billing") as pool:
        await pool.complete(bill.dispatch, "mine")
    assert (await client.result(bill.run_id))["output"] == "mine"


async def test_nothing_of_others_can_be_listened_to(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    prefix = secured.prefix
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        heard.append(message.subject)

    async with secured.wire("pool-mail") as stranger:
        for subject in (
            ">", "*.*.*.*.*.*", f"{prefix}.>", f"{prefix}.control.billing", f"{prefix}.control.*",
            f"{prefix}.in.>", f"{prefix}.inp.>", f"{prefix}.dispatch.>", f"{prefix}.events.>",
            f"{prefix}.api.>", f"{prefix}.heartbeat.*", "_INBOX.>", "_INBOX_billing.>",
            f"{secured.inbox('engine')}.>", f"{secured.inbox('client')}.>", "_R_.>", "$JS.>",
        ):  # fmt: skip
            await stranger.client.subscribe(subject, cb=on_message)
        await stranger.client.flush()
        bill = await victim(secured, operator, client)
        await client.api("run.cancel", run_id=bill.run_id)
        assert (await client.result(bill.run_id))["status"] == "cancelled"
        await settle_down(client)
        await stranger.client.flush()
    assert heard == []


async def test_streams_and_consumers_are_neither_changed_nor_read(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    bill = await victim(secured, operator, client)
    before = await stored(secured)
    names = [f"{secured.prefix.upper()}_{name}" for name in ("DISPATCH", "IN", "ADV", "EVENTS")]
    calls = ["INFO", "STREAM.NAMES", "STREAM.LIST", "ACCOUNT.INFO"]
    for name in names:
        calls += [
            f"STREAM.{verb}.{name}"
            for verb in ("CREATE", "UPDATE", "INFO", "PURGE", "DELETE", "MSG.GET", "MSG.DELETE")
        ]
        calls += [f"DIRECT.GET.{name}", f"CONSUMER.NAMES.{name}", f"CONSUMER.LIST.{name}"]
    for consumer in ("mail_p2", "billing_p2", "mine"):
        stream = names[0]
        calls += [
            f"CONSUMER.{verb}.{stream}.{consumer}"
            for verb in ("CREATE", "INFO", "DELETE", "PAUSE", "UNPIN", "LEADER.STEPDOWN")
        ]
        calls.append(f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}")
    asks = json.dumps({"seq": 1, "name": names[0], "last_by_subj": f"{secured.prefix}.>"}).encode()
    async with secured.wire("pool-mail") as stranger:
        answers = await attempts(stranger.client, [f"$JS.API.{call}" for call in calls], asks)
        await settle_down(client)
    if secured.form == "account":
        # Its own account answers, which has no JetStream: there is nothing in it.
        told = [json.loads(answer) for answer in answers]
        answers = [
            one for one in told if "error" not in one and (one.get("streams") or one["consumers"])
        ]
    assert answers == []
    assert await stored(secured) == before
    for name in ("mail_p2", "billing_p2"):
        assert "error" not in await info(secured, f"CONSUMER.INFO.{names[0]}.{name}")
    assert await client.history(bill.run_id) == bill.history


async def test_a_pool_has_no_part_in_the_api_and_starts_and_signals_nothing(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    bill = await victim(secured, operator, client)
    before = await stored(secured)
    prefix = secured.prefix
    sent = {"Towpath-Sent-By": "stranger"}
    async with secured.wire("pool-mail") as stranger:
        asks = [f"{prefix}.api.{verb}" for verb in ("run.get", "run.cancel", "run.start")]
        body = json.dumps({"run_id": bill.run_id, "workflow": "letter"}).encode()
        answers = await attempts(stranger.client, [*asks, "$SRV.PING", "$SRV.INFO.towpath"], body)
        for subject in (
            f"{prefix}.in.start.letter.-.-",
            f"{prefix}.in.signal.-.{bill.run_id}.go",
            f"{prefix}.in.signal-key.bill.-.go",
            f"{prefix}.in.child-settled.-.{bill.run_id}.{bill.run_id}",
            f"{prefix}.in.child-start.-.{bill.run_id}.{bill.run_id}",
            f"{prefix}.in.child-cancel.-.{bill.run_id}.{bill.run_id}",
            f"{prefix}.events.bill.{bill.run_id}.run-completed",
        ):
            await stranger.client.publish(subject, b"1", headers=sent)
        await stranger.client.flush()
        await settle_down(client)
    assert answers == []
    assert await stored(secured) == before
    assert [run["run_id"] for run in (await client.api("run.list"))["runs"]] == [bill.run_id]


async def test_a_client_deploys_nothing_and_repairs_nothing(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    bill = await victim(secured, operator, client)
    verbs = ("workflow.deploy", "run.retry", "run.purge", "queue.pause", "dead-letter.list")
    for verb in verbs:
        try:
            async with asyncio.timeout(0.5):
                answer = await client.api(verb, run_id=bill.run_id)
        except (nats.errors.NoRespondersError, TimeoutError):
            continue
        raise AssertionError(f"{verb} was answered: {answer}")
    assert await client.history(bill.run_id) == bill.history
