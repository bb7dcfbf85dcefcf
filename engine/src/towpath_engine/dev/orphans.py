"""Nothing stays behind: neither our children's orphans as zombies, nor we without our parent."""

import asyncio
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Collection

_PR_SET_CHILD_SUBREAPER = 36
_PARENT_POLL_SECONDS = 0.2
_CANCEL_AGAIN_SECONDS = 1.0


def adopt_orphans() -> None:
    """Make orphans below us our children (Linux), so that `reap_orphans` can bury them.

    A Postgres that is killed -9 leaves backends behind. Where process 1 is no init, as in many
    containers, they would stay zombies for ever.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def end_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel the tasks and wait until they have ended, whatever they raise.

    A cancellation may get lost where a connection fails in the same instant; a supervisor that
    waited for such a task would outlive everybody. So it is repeated.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_SECONDS)
        await asyncio.gather(*ended, return_exceptions=True)


def reap_orphans(children: Collection[int]) -> int:
    """Bury dead orphans; returns how many. `children` are those that their owner waits for."""
    buried = 0
    with contextlib.suppress(ChildProcessError):
        for process_id in _dead_children():
            if process_id not in children:
                os.waitpid(process_id, os.WNOHANG)
                buried += 1
    return buried


async def watch_parent(parent: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` once when `parent`, who started us, is our parent no more.

    Returns at once when an init started us (a container, a service, `setsid --fork`): then nobody
    expects us to go with them. The kernel's own notice (PDEATHSIG) is of no use here: it is sent
    when the parent's *thread* ends.
    """
    if parent <= 1:
        # What an init starts leads a group of its own. In another's we are an orphan already.
        if os.getpgrp() not in {os.getpid(), parent}:
            on_gone()
        return
    while os.getppid() == parent:  # noqa: ASYNC110 - a process sets no event
        await asyncio.sleep(_PARENT_POLL_SECONDS)
    on_gone()


def _dead_children() -> list[int]:
    """Process ids of all our zombies. The kernel's list, since waitid() shows one at a time and
    would show our own children's for ever before the orphans'."""
    own = os.getpid()
    dead: list[int] = []
    for task in os.listdir(f"/proc/{own}/task"):
        try:
            with open(f"/proc/{own}/task/{task}/children") as file:
                candidates = file.read().split()
        except OSError:
            continue
        dead.extend(int(process_id) for process_id in candidates if _is_zombie(process_id))
    return dead


def _is_zombie(process_id: str) -> bool:
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
