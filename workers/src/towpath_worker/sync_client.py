"""The client for programs without an event loop: the same methods, which block.

with SyncClient() as client:
    print(client.start("order", {"total": 5}).result(timeout=60))

One thread runs an event loop with a `Client` on it, for as long as the `with` lasts; any number of
threads may call at once. Interrupting a call (Ctrl-C) cancels what it asked for on the loop. Not
for use inside a running event loop, which it would block: that is what `Client` is for.
"""

import asyncio
import builtins
import functools
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from towpath_worker.client import DEFAULT_TIMEOUT_SECONDS, Client
from towpath_worker.options import ConnectionOptions
from towpath_worker.runs import RunHandle
from towpath_worker.starts import StartItem
from towpath_worker.transport import NotConnectedError
from towpath_worker.values import Json

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner")


class LoopThread:
    """A thread with an event loop. `run` blocks the calling thread, never the loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # A call is handed to the loop before it is stopped, or not at all: none waits for ever.
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        """Whether calls are taken."""
        return self._loop is not None

    def start(self) -> None:
        """Start the loop. RuntimeError when it runs already."""
        with self._lock:
            if self._loop is not None:
                raise RuntimeError("the client is open already")
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_serve, args=(self._loop,), name="towpath-client", daemon=True
            )
            self._thread.start()

    def run(self, make: Callable[[], Awaitable[T]]) -> T:
        """Await what `make` makes, on the loop. NotConnectedError when the client is closed
        meanwhile; RuntimeError when it is not open, or when this is the loop's own thread."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call inside the client's own loop would never return")
        with self._lock:
            if self._loop is None:
                raise RuntimeError(
                    "the client is not open: use it inside `with SyncClient() as client:`"
                )
            future = asyncio.run_coroutine_threadsafe(_made(make), self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise NotConnectedError("the client was closed before the answer came") from error
        except BaseException:
            # KeyboardInterrupt, for one, arrives while we wait.
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what still runs, close the loop, end the thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _made(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


async def _next(iterator: AsyncIterator[T]) -> tuple[T] | None:
    # A StopAsyncIteration cannot leave a coroutine.
    try:
        return (await anext(iterator),)
    except StopAsyncIteration:
        return None


async def _end(iterator: AsyncIterator[object]) -> None:
    close: Callable[[], Awaitable[None]] | None = getattr(iterator, "aclose", None)
    if close is not None:
        await close()


class Facade(Generic[Inner]):
    """Something of the client, with the thread on whose loop it lives."""

    def __init__(self, thread: LoopThread, inner: Inner) -> None:
        self._thread = thread
        self._inner = inner

    def call(self, make: Callable[[Inner], Awaitable[T]]) -> T:
        """Wait for it, blocking. For the façades of this module."""
        return self._thread.run(lambda: make(self._inner))

    def iterate(self, make: Callable[[Inner], AsyncIterator[T]]) -> Iterator[T]:
        """Its values, blocking for each. For the façades of this module."""
        iterator = make(self._inner)
        try:
            while (found := self._thread.run(lambda: _next(iterator))) is not None:
                yield found[0]
        finally:
            # A closed client has ended its iterators itself.
            if self._thread.running:
                self._thread.run(lambda: _end(iterator))

    @property
    def thread(self) -> LoopThread:
        """Where it lives. For the façades of this module."""
        return self._thread

    @property
    def inner(self) -> Inner:
        """What is behind it. For the façades of this module."""
        return self._inner


def _blocking(
    method: Callable[Concatenate[Inner, P], Awaitable[T]],
) -> Callable[Concatenate[Facade[Inner], P], T]:
    """The method, blocking; with its own signature and docstring."""

    @functools.wraps(method)
    def call(self: Facade[Inner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(lambda inner: method(inner, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[Inner, P], AsyncIterator[T]],
) -> Callable[Concatenate[Facade[Inner], P], Iterator[T]]:
    """The asynchronous iterator as a plain one."""

    @functools.wraps(method)
    def call(self: Facade[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.iterate(lambda inner: method(inner, *args, **kwargs))

    return call


def _giving_a_handle(
    method: Callable[Concatenate[Inner, P], Awaitable[RunHandle]],
) -> Callable[Concatenate[Facade[Inner], P], "SyncRunHandle"]:
    """The method, blocking, with a handle that blocks, too."""

    @functools.wraps(method)
    def call(self: Facade[Inner], /, *args: P.args, **kwargs: P.kwargs) -> "SyncRunHandle":
        return SyncRunHandle(self.thread, self.call(lambda inner: method(inner, *args, **kwargs)))

    return call


class SyncRunHandle(Facade[RunHandle]):
    """A run; every method is that of `RunHandle`, and blocks."""

    def __repr__(self) -> str:
        return f"SyncRunHandle({self.run_id!r}, deduplicated={self.deduplicated})"

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.inner.run_id

    @property
    def deduplicated(self) -> bool:
        """Whether a start found the run instead of creating it."""
        return self.inner.deduplicated

    @overload
    def result(self, *, timeout: float | None = None) -> Json: ...

    @overload
    def result(self, *, timeout: float | None = None, type: type[T]) -> T: ...

    def result(
        self,
        *,
        timeout: float | None = None,
        type: builtins.type[T] | None = None,  # noqa: A002 -- as in RunHandle.result
    ) -> Json | T:
        """Wait until the run has settled; its output. See `RunHandle.result`."""
        if type is None:
            return self.call(lambda run: run.result(timeout=timeout))
        return self.call(lambda run: run.result(timeout=timeout, type=type))

    get = _blocking(RunHandle.get)
    status = _blocking(RunHandle.status)
    settled = _blocking(RunHandle.settled)
    steps = _blocking(RunHandle.steps)
    output = _blocking(RunHandle.output)
    history = _blocking(RunHandle.history)
    events = _iterating(RunHandle.events)
    logs = _blocking(RunHandle.logs)
    follow_logs = _iterating(RunHandle.follow_logs)
    explain = _blocking(RunHandle.explain)
    signal = _blocking(RunHandle.signal)
    cancel = _blocking(RunHandle.cancel)
    retry = _blocking(RunHandle.retry)
    redrive = _blocking(RunHandle.redrive)
    restart = _giving_a_handle(RunHandle.restart)
    pause = _blocking(RunHandle.pause)
    resume = _blocking(RunHandle.resume)


class SyncClient(Facade[Client]):
    """A `Client` that blocks: the same options, methods and errors. Open inside `with` only."""

    def __init__(
        self,
        *,
        nats_url: str | None = None,
        prefix: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        connection: ConnectionOptions | None = None,
        by: str | None = None,
    ) -> None:
        client = Client(
            nats_url=nats_url,
            prefix=prefix,
            timeout_seconds=timeout_seconds,
            connection=connection,
            by=by,
        )
        super().__init__(LoopThread(), client)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start the thread and connect. Raises what `Client.open` raises."""
        self.thread.start()
        try:
            self.call(lambda client: client.open())
        except BaseException:
            self.thread.stop()
            raise

    def close(self) -> None:
        """Disconnect and end the thread; calls that still wait are cancelled."""
        if self.thread.running:
            try:
                self.call(lambda client: client.close())
            finally:
                self.thread.stop()

    def handle(self, run_id: str) -> SyncRunHandle:
        """A handle on a run that is known by its id; asks nobody."""
        return SyncRunHandle(self.thread, self.inner.handle(run_id))

    def start_many(
        self, items: Sequence[StartItem | Mapping[str, object]]
    ) -> Sequence[SyncRunHandle]:
        """Start any number of runs, each on its own. See `Client.start_many`."""
        handles = self.call(lambda client: client.start_many(items))
        return [SyncRunHandle(self.thread, handle) for handle in handles]

    deploy = _blocking(Client.deploy)
    start = _giving_a_handle(Client.start)
    signal = _blocking(Client.signal)
    signal_with_start = _giving_a_handle(Client.signal_with_start)
    cancel = _blocking(Client.cancel)
    find = _giving_a_handle(Client.find)
    get = _blocking(Client.get)
    result = _blocking(Client.result)
    history = _blocking(Client.history)
    logs = _blocking(Client.logs)
    list = _iterating(Client.list)
    list_page = _blocking(Client.list_page)
    workflows = _blocking(Client.workflows)
    workflow = _blocking(Client.workflow)
    pause_workflow = _blocking(Client.pause_workflow)
    resume_workflow = _blocking(Client.resume_workflow)
    set_retention = _blocking(Client.set_retention)
    queues = _blocking(Client.queues)
    pause_queue = _blocking(Client.pause_queue)
    resume_queue = _blocking(Client.resume_queue)
    pause_task = _blocking(Client.pause_task)
    resume_task = _blocking(Client.resume_task)
    pauses = _blocking(Client.pauses)
    workers = _iterating(Client.workers)
    dead_letters = _iterating(Client.dead_letters)
    dead_letters_page = _blocking(Client.dead_letters_page)
    dead_letter = _blocking(Client.dead_letter)
    discard_dead_letters = _blocking(Client.discard_dead_letters)
    replay_dead_letters = _blocking(Client.replay_dead_letters)
    purge = _blocking(Client.purge)
