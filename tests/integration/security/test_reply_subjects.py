"""The reply-subject trick: a pool names another's subject for the answer to what it may publish.

The server checks no reply subjects, and writes its PubAck, or a copy of the pool's own dispatch,
wherever it was told. With an account for each pool that leads nowhere. With users of one account it
makes junk: refused by whoever decodes it, kept as a dead letter, and no run ever moves.
"""

import json
from typing import Any

import pytest

from tests.integration.security.test_strangers import (
    Json,
    Victim,
    settle_down,
    stored,
    victim,
)
from tests.support.eventually import until_async
from tests.support.secured import Secured, one_step, serving
from tests.support.wire_client import WireClient
from towpath_worker import Worker

# Every subject that somebody else stands behind. {run}, {signal}: known to whoever works for it.
ELSEWHERE = (
    "{p}.dispatch.billing.2.{run}.{unused}",
    "{p}.in.step-completed.billing.{run}.{unused}",
    "{p}.in.step-failed.billing.{run}.{unused}",
    "{p}.in.step-released.billing.{run}.{unused}",
    "{p}.in.signal.-.{run}.go",
    "{p}.in.signal-key.bill.-.go",
    "{p}.in.start.bill.-.-",
    "{p}.in.child-settled.-.{run}.{run}",
    "{p}.in.child-start.-.{run}.{run}",
    "{p}.in.child-cancel.-.{run}.{run}",
    "{p}.events.bill.{run}.run-completed",
)


def targets(secured: Secured, bill: Victim) -> list[str]:
    """The subjects of others; the token is one that the stranger had to guess."""
    places = {"p": secured.prefix, "run": bill.run_id, "unused": "0" * 24}
    return [subject.format(**places) for subject in ELSEWHERE]


async def play(stranger: WireClient, dispatch: Json, ack_subject: str, elsewhere: str) -> None:
    """Everything that a pool may publish, answered elsewhere."""
    client, prefix = stranger.client, stranger.prefix
    own = f"mail.{dispatch['run_id']}.{dispatch['token']}"
    await client.publish(f"{prefix}.in.step-heartbeat.{own}", b'{"n":1}', reply=elsewhere)
    presence = json.dumps({"worker_id": "s", "tokens": []}).encode()
    await client.publish(f"{prefix}.heartbeat.mail", presence, reply=elsewhere)
    pull = f"$JS.API.CONSUMER.MSG.NEXT.{prefix.upper()}_DISPATCH.mail_p2"
    await client.publish(pull, b'{"batch":1,"no_wait":true}', reply=elsewhere)
    await client.publish(pull, b'{"nonsense', reply=elsewhere)
    await client.publish(ack_subject, b"+WPI", reply=elsewhere)
    await client.flush()


async def test_answers_sent_elsewhere_move_no_run(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    bill = await victim(secured, operator, client)
    # More dispatches of its own than tricks, so that there is a copy for each.
    for _ in range(12):
        await client.start("letter")
    async with secured.wire("pool-mail") as stranger:
        dispatch, message = await stranger.pull("mail")
        before = await stored(secured)
        for elsewhere in targets(secured, bill):
            await play(stranger, dispatch, message.reply, elsewhere)
        await settle_down(client)
    after = await stored(secured)
    if secured.form == "account":
        # The heartbeats arrived, one for each trick. Nothing else came out of the account.
        streams = {name.rpartition("_")[2]: after[name] - before[name] for name in after}
        assert streams["DISPATCH"] == 0
        assert streams["IN"] <= len(ELSEWHERE)
        assert await operator.dead_letters() == []
    else:
        # The test would prove nothing if the trick did not work on the server.
        assert (
            after[f"{secured.prefix.upper()}_DISPATCH"]
            > before[f"{secured.prefix.upper()}_DISPATCH"]
        )

        async def buried() -> bool:
            reasons = {letter["reason"] for letter in await operator.dead_letters()}
            return "missing_sender" in reasons

        await until_async(buried, "junk for signals and starts is kept as dead letters")
    assert await client.history(bill.run_id) == bill.history
    runs = (await client.api("run.list", limit=100))["runs"]
    assert len(runs) == 13, "no run was started"
    async with secured.wire("pool-billing") as pool:
        await pool.complete(bill.dispatch, "mine")
    assert (await client.result(bill.run_id))["output"] == "mine"


async def test_a_dispatch_copied_into_another_queue_is_run_by_nobody(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    """Even when that queue's workers know a task of that name."""
    ran: list[Any] = []
    worker = Worker("billing", connection=secured.options("pool-billing"))

    @worker.task("letter.send")
    async def send(value: Any) -> None:
        ran.append(value)

    @worker.task("bill.send")
    async def bill_send(value: Any) -> str:
        return "billed"

    await operator.deploy(one_step("letter", "mail", "letter.send"))
    await operator.deploy(one_step("bill", "billing", "bill.send"))
    letter = await client.start("letter", "pay me")
    async with secured.wire("pool-mail") as stranger:
        pull = f"$JS.API.CONSUMER.MSG.NEXT.{secured.prefix.upper()}_DISPATCH.mail_p2"
        await client.step_in(letter, "only", "dispatched")
        elsewhere = f"{secured.prefix}.dispatch.billing.2.{letter}.{'0' * 24}"
        await stranger.client.publish(pull, b'{"batch":1,"no_wait":true}', reply=elsewhere)
        await stranger.client.flush()
        async with serving(worker):
            result = await client.result(await client.start("bill"))
            assert (result["status"], result["output"]) == ("completed", "billed")
    assert ran == []
    assert (await client.run(letter))["status"] == "running"


@pytest.mark.parametrize(
    "reply", ["{p}.in.signal.-.{run}.go", "{p}.dispatch.billing.2.{run}.x", "other", "$JS.API.INFO"]
)
async def test_the_engine_answers_only_to_inboxes(
    secured: Secured, operator: WireClient, client: WireClient, reply: str
) -> None:
    """Also to those whom it trusts most."""
    bill = await victim(secured, operator, client)
    before = await stored(secured)
    to = reply.format(p=secured.prefix, run=bill.run_id)
    body = json.dumps({"run_id": bill.run_id}).encode()
    for verb in ("run.get", "run.result", "no.such"):
        await operator.client.publish(f"{secured.prefix}.api.{verb}", body, reply=to)
    await operator.client.publish("$SRV.INFO", b"", reply=to)
    await operator.client.flush()
    await settle_down(client)
    assert await stored(secured) == before
    assert await client.history(bill.run_id) == bill.history
