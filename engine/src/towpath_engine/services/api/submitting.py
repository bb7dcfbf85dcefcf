"""From a request to its outcome: submit the work that it means and wait for the commit."""

import asyncio
from collections.abc import Callable

from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Outcome, Work

MakeWork = Callable[[Callable[[Outcome], None]], Work]
"""Makes the work, given the function that is to be called with its outcome."""


def submitted(shell: Shell, make: MakeWork) -> asyncio.Future[Outcome]:
    """Submit the work at once; the future has its outcome after the commit.

    Nothing is raised for work that fails: the outcome says so.
    """
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settle(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    shell.submit(make(settle))
    return future
