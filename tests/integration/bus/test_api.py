"""The micro service: requests are answered at the same time, up to a limit, and only to inboxes."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from tests.support.bus import BusUnderTest, bus_settings, run_id, running_bus, stream_is_empty
from tests.support.eventually import until
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.outsider import Outsider, Received, connected_outsider
from towpath_engine.bus.interface import ApiReply, ApiRequest
from towpath_engine.bus.settings import MIB
from towpath_protocol import subjects


class Answering:
    """A handler that tells what it was asked; `slow.wait` answers when `release` is set."""

    def __init__(self) -> None:
        self.asked: list[ApiRequest] = []
        self.release = asyncio.Event()

    async def __call__(self, request: ApiRequest) -> ApiReply:
        self.asked.append(request)
        match request.verb:
            case "slow.wait" | "run.result":
                await self.release.wait()
            case "bad.crash":
                raise RuntimeError("the secret of the house")
            case "bad.state":
                error = b'{"error":{"code":"run_settled","message":"m","details":{}}}'
                return ApiReply(body=error, code=409, description="run_settled: caf\u00e9\r\nX: y")
            case "big.value":
                return ApiReply(body=b"x" * (2 * MIB))
            case _:
                pass
        body = msgspec.json.encode({"verb": request.verb, "body": request.body.decode()})
        return ApiReply(body=body, content_type="application/json")


@asynccontextmanager
async def serving(
    url: str, prefix: str, *, concurrency_max: int = 10
) -> AsyncGenerator[tuple[BusUnderTest, Answering]]:
    handler = Answering()
    async with running_bus(url, prefix) as under_test:
        under_test.bus.serve_api(handler, concurrency_max=concurrency_max, polls_max=2)
        await until(lambda: under_test.bus.connected, "requests reach us")
        try:
            yield under_test, handler
        finally:
            handler.release.set()


def error_of(answer: Received) -> tuple[str, str]:
    assert answer.headers is not None
    body = json.loads(answer.data)["error"]
    assert set(body) == {"code", "message", "details"}
    return answer.headers["Nats-Service-Error-Code"], body["code"]


async def test_a_request_is_answered_with_the_handlers_words(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix) as (_, handler):
        headers = {"Towpath-Sent-By": "test"}
        answer = await outsider.request(f"{prefix}.api.run.start", b"{}", headers=headers)
        assert json.loads(answer.data) == {"verb": "run.start", "body": "{}"}
        assert answer.headers == {"Content-Type": "application/json"}
        (request,) = handler.asked
        assert request.subject == f"{prefix}.api.run.start"
        assert request.headers == headers


async def test_a_heartbeat_is_a_request_of_its_own_kind(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix) as (_, handler):
        answer = await outsider.request(f"{prefix}.heartbeat.mail", b"{}")
        assert json.loads(answer.data)["verb"] == "heartbeat"
        assert handler.asked[0].subject == f"{prefix}.heartbeat.mail"


async def test_requests_run_at_the_same_time_and_over_the_limit_answer_429(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix, concurrency_max=3) as (_, handler):
        slow = [
            asyncio.create_task(outsider.request(f"{prefix}.api.slow.wait", b"%d" % n))
            for n in range(3)
        ]
        await until(lambda: len(handler.asked) == 3, "all three run at the same time")
        answer = await outsider.request(f"{prefix}.api.run.get")
        assert error_of(answer) == ("429", "overloaded")
        assert json.loads(answer.data)["error"]["details"]["retry_after_ms"] > 0
        # Workers' heartbeats have slots of their own.
        heartbeat = await outsider.request(f"{prefix}.heartbeat.mail")
        assert json.loads(heartbeat.data)["verb"] == "heartbeat"

        handler.release.set()
        bodies = {json.loads(answer.data)["body"] for answer in await asyncio.gather(*slow)}
        assert bodies == {"0", "1", "2"}
        later = await outsider.request(f"{prefix}.api.run.get")
        assert json.loads(later.data)["verb"] == "run.get"


async def test_long_polls_take_no_place_from_other_requests(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix, concurrency_max=1) as (_, handler):
        polls = [
            asyncio.create_task(outsider.request(f"{prefix}.api.run.result", b"%d" % n))
            for n in range(2)
        ]
        await until(lambda: len(handler.asked) == 2, "both wait")
        answer = await outsider.request(f"{prefix}.api.run.get")
        assert json.loads(answer.data)["verb"] == "run.get"
        third = await outsider.request(f"{prefix}.api.run.result")
        assert error_of(third) == ("429", "overloaded")

        handler.release.set()
        assert {json.loads(answer.data)["body"] for answer in await asyncio.gather(*polls)} == {
            "0",
            "1",
        }


async def test_an_exception_is_answered_500_and_tells_nothing(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix):
        answer = await outsider.request(f"{prefix}.api.bad.crash")
        assert error_of(answer) == ("500", "internal")
        assert b"secret" not in answer.data
        assert "secret" not in str(answer.headers)
        assert "RuntimeError" not in str(answer.headers)


async def test_an_error_answer_sets_the_service_headers_in_ascii(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix):
        answer = await outsider.request(f"{prefix}.api.bad.state")
        assert error_of(answer) == ("409", "run_settled")
        assert answer.headers is not None
        assert answer.headers["Nats-Service-Error"].startswith("run_settled: caf")
        assert answer.headers["Nats-Service-Error"].isascii()
        assert "X" not in answer.headers


async def test_an_answer_too_large_for_a_message_is_an_error_not_a_lost_connection(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix) as (under_test, _):
        resets = under_test.resets
        answer = await outsider.request(f"{prefix}.api.big.value")
        assert error_of(answer) == ("413", "too_large")
        assert under_test.resets == resets


async def test_a_reply_subject_that_is_no_inbox_is_never_answered(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix) as (under_test, handler):
        subject = f"{prefix}.api.run.get"
        forged = f"{prefix}.in.signal.-.{run_id()}.go"
        for reply in ("", forged, f"{prefix}.api.run.list", "_INBOX.>", "_INBOX.*.a", "INBOX.x"):
            await outsider.publish(subject, b"{}", reply=reply)
        answer = await outsider.request(subject, b'"last"')
        assert json.loads(answer.data)["body"] == '"last"'
        assert len(handler.asked) == 1
        state = await under_test.bus.stream_state(subjects.in_stream(prefix))
        assert state is not None
        assert state.last_seq == 0


async def test_the_service_answers_ping_info_and_stats(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with serving(jetstream_url, prefix):
        await outsider.request(f"{prefix}.api.run.start")
        await outsider.request(f"{prefix}.api.bad.state")
        about: dict[str, dict[str, object]] = {}
        for verb in ("PING", "INFO", "STATS"):
            for name in ("", ".towpath"):
                listener = await outsider.listen(inbox := outsider.inbox())
                await outsider.publish(f"$SRV.{verb}{name}", reply=inbox)
                answer = json.loads((await listener.next()).data)
                assert answer["type"] == f"io.nats.micro.v1.{verb.lower()}_response"
                assert answer["name"] == "towpath"
                about[verb] = answer
        again = await outsider.request(f"$SRV.PING.towpath.{about['PING']['id']}")
        assert json.loads(again.data) == about["PING"]
        info = msgspec.convert(about["INFO"]["endpoints"], list[dict[str, object]])
        assert {endpoint["subject"] for endpoint in info} == {
            f"{prefix}.api.>",
            f"{prefix}.heartbeat.*",
        }
        stats = msgspec.convert(about["STATS"]["endpoints"], list[dict[str, object]])
        assert stats[0]["num_requests"] == 2
        assert stats[0]["num_errors"] == 1
        assert str(stats[0]["last_error"]).startswith("409:")


async def test_two_engines_share_the_requests(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with (
        serving(jetstream_url, prefix) as (_, one),
        serving(jetstream_url, prefix) as (_, two),
    ):
        for _ in range(100):
            await outsider.request(f"{prefix}.api.run.get")
        assert len(one.asked) + len(two.asked) == 100
        assert one.asked
        assert two.asked


async def test_the_api_answers_again_after_a_restart_of_the_server(
    own_jetstream: JetStreamServer,
) -> None:
    prefix = unique_prefix()
    async with serving(own_jetstream.url, prefix) as (under_test, _):
        resets = under_test.resets
        own_jetstream.restart()
        await until(lambda: under_test.resets > resets, "connected again")
        async with connected_outsider(own_jetstream.url) as client:
            answer = await client.request(f"{prefix}.api.run.get")
            assert json.loads(answer.data)["verb"] == "run.get"


async def test_close_lets_running_handlers_answer(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    under_test = BusUnderTest(bus_settings(jetstream_url, prefix))
    handler = Answering()
    under_test.bus.serve_api(handler, concurrency_max=10, polls_max=10)
    await under_test.bus.start()
    waiting = asyncio.create_task(outsider.request(f"{prefix}.api.slow.wait"))
    await until(lambda: len(handler.asked) == 1, "the handler runs")
    closing = asyncio.create_task(under_test.bus.close())
    handler.release.set()
    assert json.loads((await waiting).data)["verb"] == "slow.wait"
    await closing
    assert not under_test.bus.connected


async def test_core_messages_go_out_and_come_in(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        heard: list[tuple[str, bytes]] = []
        under_test.bus.subscribe_core(
            f"{prefix}.wake.*", lambda subject, body: heard.append((subject, body))
        )
        control = await outsider.listen(f"{prefix}.control.mail")
        await outsider.flush()
        under_test.bus.send_core(f"{prefix}.control.mail", b"{}")
        assert (await control.next()).data == b"{}"

        def woken() -> bool:
            under_test.bus.send_core(f"{prefix}.wake.3", b"1")
            return bool(heard)

        await until(woken, "the wake is heard")
        assert heard[0] == (f"{prefix}.wake.3", b"1")
        await stream_is_empty(under_test, subjects.in_stream(prefix))
