"""Making a failing history small: fewer numbers, fewer steps, fewer fields."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

Document = dict[str, Any]
Fails = Callable[[Document, list[int]], str | None]
"""Why the history fails, in a few words that stay the same while it is made smaller; None: it does
not fail (or the definition is not accepted)."""

ROUNDS_MAX: Final = 400
"""How often a smaller history is tried at most."""


def shrunk(document: Document, numbers: list[int], fails: Fails) -> tuple[Document, list[int]]:
    """A smaller history that fails in the same way."""
    reason = fails(document, numbers)
    rounds = 0
    changed = True
    while changed and rounds < ROUNDS_MAX:
        changed = False
        for smaller in _smaller(document, numbers):
            rounds += 1
            if rounds >= ROUNDS_MAX:
                break
            if fails(*smaller) == reason:
                document, numbers = smaller
                changed = True
                break
    return document, numbers


def _smaller(document: Document, numbers: list[int]) -> Iterator[tuple[Document, list[int]]]:
    size = len(numbers)
    chunk = max(1, size // 2)
    while size and chunk:
        for start in range(0, size, chunk):
            yield document, numbers[:start] + numbers[start + chunk :]
        chunk //= 2
    for way in list(_ways(document)):
        smaller = copy.deepcopy(document)
        inner: Any = smaller
        for key in way[:-1]:
            inner = inner[key]
        del inner[way[-1]]
        yield smaller, numbers


def _ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each element of each list and to each field, the outermost first."""
    if isinstance(value, dict):
        fields = cast("Document", value)
        for key in fields:
            yield (*way, key)
        for key, inner in fields.items():
            yield from _ways(inner, (*way, key))
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        for index in range(len(items)):
            yield (*way, index)
        for index, inner in enumerate(items):
            yield from _ways(inner, (*way, index))


def shown(document: Document, numbers: list[int]) -> str:
    """The history as one can paste it into a test."""
    return f"document = {json.dumps(document)}\nnumbers = {numbers}"
