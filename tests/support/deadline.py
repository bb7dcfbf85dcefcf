"""Waiting in tests: poll with a deadline ten times too wide, never sleep and hope."""

import asyncio
from collections.abc import Awaitable, Callable

HANG_GUARD_S = 60.0
POLL_S = 0.01


async def let_pass(seconds: float) -> None:
    """Let time go by where the time itself is what a test is about. Never to wait for something."""
    await asyncio.sleep(seconds)


async def eventually(
    check: Callable[[], bool], what: str, *, timeout_s: float = HANG_GUARD_S
) -> None:
    """Return once `check` is true; fail with `what` when it never becomes so."""

    async def asynchronous() -> bool:
        return check()

    await eventually_async(asynchronous, what, timeout_s=timeout_s)


async def eventually_async(
    check: Callable[[], Awaitable[bool]], what: str, *, timeout_s: float = HANG_GUARD_S
) -> None:
    """As `eventually`, for a check that has to ask somebody."""
    try:
        async with asyncio.timeout(timeout_s):
            while not await check():  # noqa: ASYNC110 - what is awaited sets no event
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None
