"""The blocking façade: the same methods, any thread, and nothing left behind."""

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.client.conftest import ApiSide
from tests.support.engine_side import new_run_id
from tests.support.eventually import DEADLINE_SECONDS, eventually_sync, until
from tests.support.wire_client import WireClient
from tests.support.workflows import chain, one_wait
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings
from towpath_worker import (
    Client,
    NotConnectedError,
    NotFoundError,
    RunHandle,
    StartManyError,
    SyncClient,
    SyncRunHandle,
)

# `open` and `close` are the façade's own, `result` and `handle` are written out for their types.
OF_THE_CONTEXT = {"open", "close"}


def public_methods(kind: type) -> dict[str, Callable[..., object]]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("kind", "facade"), [(Client, SyncClient), (RunHandle, SyncRunHandle)])
def test_the_facade_has_every_method_with_its_parameters_and_docstring(
    kind: type, facade: type
) -> None:
    blocking = public_methods(facade)
    for name, method in public_methods(kind).items():
        if name in OF_THE_CONTEXT:
            continue
        assert not inspect.iscoroutinefunction(inspect.unwrap(blocking[name])) or (
            inspect.unwrap(blocking[name]) is method
        )
        assert blocking[name].__doc__, name
        if name not in ("handle", "result"):
            parameters = inspect.signature(method).parameters
            assert inspect.signature(blocking[name]).parameters == parameters, name


async def in_threads(work: Callable[[], None]) -> None:
    """Run blocking work beside the engine, which lives on this loop."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.to_thread(work)


async def test_a_program_without_a_loop_starts_signals_and_reads_runs(
    engine: Engine, settings: Settings, wire: WireClient
) -> None:
    def program() -> None:
        with SyncClient(nats_url=settings.nats_url, prefix=settings.prefix, by="ann") as client:
            client.deploy(one_wait())
            handle = client.start("waiting", {"n": 1}, key="k", tags=["t"])
            assert isinstance(handle, SyncRunHandle)
            assert client.find("waiting", "k").run_id == handle.run_id
            events = handle.events()
            assert next(events).type == "run-started"
            client.signal("waiting", key="k", signal="go", payload=[1])
            assert [event.type for event in events] == ["step-completed", "run-completed"]
            output = handle.result(timeout=DEADLINE_SECONDS, type=dict[str, Any])
            assert (output["payload"], output["sent_by"]) == ([1], "ann")
            assert handle.status() == "completed"
            assert [run.run_id for run in client.list("waiting", tag="t")] == [handle.run_id]
            assert handle.history()[-1].what == "run-completed"
            many = client.start_many([{"workflow": "waiting"}] * 3)
            assert [client.cancel(run_id=run.run_id).status for run in many] == ["cancelled"] * 3
            with pytest.raises(NotFoundError, match="deploy it first"):
                client.start("nothing")
            with pytest.raises(StartManyError, match="workflow_not_found"):
                client.start_many([{"workflow": "nothing"}])

    await in_threads(program)


async def test_many_threads_share_one_client(
    engine: Engine, settings: Settings, wire: WireClient
) -> None:
    await wire.deploy(chain(length=1))
    wire.work("default", lambda dispatch: dispatch["input"])

    def program() -> None:
        with SyncClient(nats_url=settings.nats_url, prefix=settings.prefix) as client:

            def one(number: int) -> object:
                return client.start("chain", number).result(timeout=DEADLINE_SECONDS)

            with ThreadPoolExecutor(8) as threads:
                assert list(threads.map(one, range(40))) == list(range(40))

    await in_threads(program)


@pytest.fixture
def sync_asking(api: ApiSide, jetstream_url: str) -> Iterator[SyncClient]:
    """A blocking client whose requests the test answers."""
    client = SyncClient(nats_url=jetstream_url, prefix=api.prefix, timeout_seconds=30)
    yield client
    client.close()


def client_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "towpath-client"]


async def test_closing_ends_the_calls_that_wait_and_the_thread(
    api: ApiSide, sync_asking: SyncClient
) -> None:
    api.answers["run.result"] = lambda _: None

    def wait() -> None:
        with pytest.raises(NotConnectedError, match="closed before the answer came"):
            sync_asking.result(new_run_id())

    await in_threads(sync_asking.open)
    assert client_threads() == ["towpath-client"]
    waiting = asyncio.create_task(in_threads(wait))
    await until(lambda: bool(api.bodies("run.result")), "it waits")
    await in_threads(sync_asking.close)
    await waiting
    assert client_threads() == []
    with pytest.raises(RuntimeError, match="inside `with SyncClient"):
        sync_asking.get(new_run_id())


async def test_an_iterator_that_outlives_its_client_ends_quietly(
    api: ApiSide, sync_asking: SyncClient
) -> None:
    run: dict[str, object] = {
        "run_id": new_run_id(), "workflow": "order", "version": 1, "key": None, "status": "x",
        "error": None, "priority": "normal", "tags": [], "created_at": "", "started_at": None,
        "settled_at": None,
    }  # fmt: skip
    api.answers["run.list"] = lambda _: {"runs": [run], "next_cursor": "more"}

    def program() -> None:
        sync_asking.open()
        runs = sync_asking.list()
        assert next(runs).run_id == run["run_id"]
        sync_asking.close()
        del runs

    await in_threads(program)


def test_without_nats_opening_fails_and_leaves_no_thread(prefix: str) -> None:
    client = SyncClient(nats_url="nats://127.0.0.1:1", prefix=prefix, timeout_seconds=0.2)
    with pytest.raises(NotConnectedError):
        client.open()
    assert client_threads() == []


def test_an_interrupted_call_is_cancelled_on_the_loop(jetstream_url: str, prefix: str) -> None:
    with SyncClient(nats_url=jetstream_url, prefix=prefix, timeout_seconds=60) as client:
        inside: Any = client
        # Nobody answers on this prefix: the call goes on trying until Ctrl-C.
        main = threading.main_thread().ident
        timer = threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            client.workflows()
        timer.join()
        loop = inside._thread._loop
        eventually_sync(lambda: not [task for task in asyncio.all_tasks(loop) if is_call(task)])


def is_call(task: "asyncio.Task[Any]") -> bool:
    return "_made" in repr(task.get_coro())


async def test_a_call_inside_its_own_loop_is_refused_instead_of_hanging(
    api: ApiSide, sync_asking: SyncClient
) -> None:
    inside: Any = sync_asking

    async def on_the_loop() -> None:
        sync_asking.workflows()

    def program() -> None:
        sync_asking.open()
        with pytest.raises(RuntimeError, match="would never return"):
            inside._thread.run(on_the_loop)

    await in_threads(program)
