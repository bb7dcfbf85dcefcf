"""Poll until something is true. The only waiting that tests do: nobody guesses how long."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

# A hang guard, not an expectation: about ten times what a loaded machine needs.
DEADLINE_SECONDS = 120.0
_POLL_SECONDS = 0.05


async def eventually(
    probe: Callable[[], Awaitable[T | None]], *, deadline_seconds: float = DEADLINE_SECONDS
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
        await asyncio.sleep(_POLL_SECONDS)


def eventually_sync(
    probe: Callable[[], T | None], *, deadline_seconds: float = DEADLINE_SECONDS
) -> T:
    """The same for code without an event loop."""
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
