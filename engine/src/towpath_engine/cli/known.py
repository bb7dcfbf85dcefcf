"""Whether a name means anything to this installation: a misspelt one should not go unnoticed."""

from collections.abc import Mapping
from typing import Final

import msgspec

from towpath_worker import ApiError, Client, TransportError

WORKERS_MAX: Final = 10_000
WORKFLOWS_MAX: Final = 200
"""Larger installations are not searched whole: there, a name counts as known."""


async def task_is_known(client: Client, task: str) -> bool:
    """Whether a worker offers the task, or the newest version of a workflow names it. True, too,
    where that can't be told: a warning must not be wrong."""
    try:
        return await _offered(client, task) or await _named(client, task)
    except (ApiError, TransportError):
        return True


async def _offered(client: Client, task: str) -> bool:
    seen = 0
    async for worker in client.workers():
        seen += 1
        if task in worker.tasks or seen > WORKERS_MAX:
            return True
    return False


async def _named(client: Client, task: str) -> bool:
    workflows = await client.workflows()
    if len(workflows) > WORKFLOWS_MAX:
        return True
    for each in workflows:
        view = await client.workflow(each.workflow)
        if _names_task(msgspec.json.decode(view.definition), task):
            return True
    return False


def _names_task(part: object, task: str) -> bool:
    """Whether this part of a definition, or one below it, has the task."""
    if isinstance(part, Mapping):
        fields = msgspec.convert(part, Mapping[str, object])
        return fields.get("task") == task or any(
            _names_task(each, task) for each in fields.values()
        )
    if isinstance(part, list):
        return any(_names_task(each, task) for each in msgspec.convert(part, list[object]))
    return False
