"""The steps of a run in the order of the workflow's lists, in which a person thinks of them."""

import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from towpath_protocol import replies
from towpath_worker.api_errors import ApiError
from towpath_worker.transport import TransportError

_NAME: Final = re.compile(r"([^\[#~]*)(?:~([0-9]+))?(?:\[([0-9]+)\])?(?:#([0-9]+))?")
_LAST: Final = 1 << 62
"""Behind all places and visits."""


class _Parallel(Struct, frozen=True):
    branches: Mapping[str, tuple["_Step", ...]]


class _Map(Struct, frozen=True):
    steps: tuple["_Step", ...]


class _Step(Struct, frozen=True):
    name: str
    parallel: _Parallel | None = None
    map: _Map | None = None


class _Steps(Struct, frozen=True):
    steps: tuple[_Step, ...]


async def in_list_order(
    reading: Awaitable[replies.WorkflowView], steps: Sequence[replies.StepView]
) -> list[replies.StepView]:
    """The steps as their run's version of the workflow, which is `reading`, lists them, each with
    what lies below it behind it, items by index; by path alone where it can't be read."""
    try:
        view = await reading
        document = msgspec.json.decode(view.definition, type=_Steps)
        places = dict(_places(document.steps, ""))
    except (ApiError, TransportError, msgspec.MsgspecError):
        places = {}
    return sorted(steps, key=lambda step: _order(places, step.step))


def depth_of(path: str) -> int:
    """How deep a step lies: 0 in the workflow's own list, 1 a branch or item, 2 a step in it, …"""
    return path.count("/") + path.count("[")


def _places(steps: Sequence[_Step], owner: str) -> Iterator[tuple[str, int]]:
    """The place of each step and branch (its names from the top), and its number in its list."""
    for number, step in enumerate(steps):
        place = f"{owner}/{step.name}" if owner else step.name
        yield place, number
        if step.map is not None:
            yield from _places(step.map.steps, place)
        if step.parallel is not None:
            for index, (branch, inner) in enumerate(step.parallel.branches.items()):
                yield f"{place}/{branch}", index
                yield from _places(inner, f"{place}/{branch}")


def _order(places: Mapping[str, int], path: str) -> list[tuple[int, str, int, int, int]]:
    """By place, then by visit and index; an earlier visit comes before the step as it is now."""
    found: list[tuple[int, str, int, int, int]] = []
    place = ""
    for part in path.split("/"):
        match = _NAME.fullmatch(part)
        name, of_visit, index, visit = match.groups() if match else (part, None, None, None)
        place = f"{place}/{name}" if place else name
        found.append(
            (
                places.get(place, _LAST),
                name,
                0 if of_visit is None else int(of_visit),
                -1 if index is None else int(index),
                _LAST if visit is None else int(visit),
            )
        )
    return found
