"""Poll until something is true. The only waiting that tests do: nobody guesses how long.

`eventually` gives back what its probe found; `until` waits for a plain condition and says what
never came. Deadlines are hang guards, not expectations: ten times what a loaded machine needs.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 120.0
_POLL_SECONDS = 0.05
_QUICK_POLL_SECONDS = 0.01


async def let_pass(seconds: float) -> None:
    """Let time go by where the time itself is what a test is about. Never to wait for something."""
    await asyncio.sleep(seconds)


async def eventually(
    probe: Callable[[], Awaitable[T | None]],
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
    poll_seconds: float = _POLL_SECONDS,
) -> T:
    """The first truthy value of `probe`, which may fail with AssertionError in the meantime.

    Raises AssertionError with the last value, or the last failure, after the deadline.
    """
    deadline = time.monotonic() + deadline_seconds
    while True:
        last: object
        try:
            if value := await probe():
                return value
            last = value
        except AssertionError as failure:
            last = failure
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_seconds:g} s; the last was: {last!r}")
        await asyncio.sleep(poll_seconds)


async def until(check: Callable[[], bool], what: str) -> None:
    """Return once `check` is true; fail with `what` when it never becomes so."""

    async def asynchronous() -> bool:
        return check()

    await until_async(asynchronous, what)


async def until_async(check: Callable[[], Awaitable[bool]], what: str) -> None:
    """As `until`, for a check that has to ask somebody."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):  # also when the check itself hangs
            await eventually(check, poll_seconds=_QUICK_POLL_SECONDS)
    except (AssertionError, TimeoutError) as failure:
        raise AssertionError(f"never: {what}") from failure


def eventually_sync(
    probe: Callable[[], T | None], *, deadline_seconds: float = DEADLINE_SECONDS
) -> T:
    """As `eventually`, for code without an event loop."""
    deadline = time.monotonic() + deadline_seconds
    while True:
        last: object
        try:
            if value := probe():
                return value
            last = value
        except AssertionError as failure:
            last = failure
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_seconds:g} s; the last was: {last!r}")
        time.sleep(_POLL_SECONDS)
