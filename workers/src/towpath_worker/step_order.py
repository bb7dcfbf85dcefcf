"""The steps of a run in the order of the workflow's list, in which a person thinks of them."""

import re
from collections.abc import Awaitable, Sequence

import msgspec
from msgspec import Struct

from towpath_protocol import replies
from towpath_worker.api_errors import ApiError
from towpath_worker.transport import TransportError


class _Name(Struct, frozen=True):
    name: str


class _Steps(Struct, frozen=True):
    steps: tuple[_Name, ...]


async def in_list_order(
    reading: Awaitable[replies.WorkflowView], steps: Sequence[replies.StepView]
) -> list[replies.StepView]:
    """The steps as their run's version of the workflow, which is `reading`, lists them, by path
    below each; by path alone where it can't be read."""
    try:
        view = await reading
        names = [step.name for step in msgspec.json.decode(view.definition, type=_Steps).steps]
    except (ApiError, TransportError, msgspec.MsgspecError):
        names = []
    places = {name: place for place, name in enumerate(names)}
    return sorted(steps, key=lambda step: (places.get(_top(step), len(names)), step.step))


def _top(step: replies.StepView) -> str:
    """The name in the workflow's list with which a path begins."""
    return re.split(r"[^a-z0-9_]", step.step, maxsplit=1)[0]
