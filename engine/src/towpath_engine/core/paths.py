"""Where a step stands: its place in the definition, and its path within a run.

A *place* is the names from the top of the definition joined by `/`: `lines/reserve` is the step
`reserve` in the body of the map `lines`, `notify/email/send` the step `send` in the branch `email`
of the parallel step `notify`. A *path* is the same for one run, with the index of each item:
`lines[3]/reserve`. Whoever runs a list is its *owner*: the run itself (path empty), a branch
(`notify/email`) or an item (`lines[3]`); branches and items are the *parts* of a *whole*.

The row of an earlier visit that must still be undone is kept under `PATH#VISIT`.
"""

import re
from typing import Final

ROOT: Final = ""
"""Path and place of the list of the run itself."""

_INDEX: Final = re.compile(r"\[[0-9]+\]")


def place_of(path: str) -> str:
    """The place in the definition that a path belongs to: indices and visit are taken out."""
    path = path.partition("#")[0]
    return _INDEX.sub("", path) if "[" in path else path


def within(owner: str, name: str) -> str:
    """The path of the step `name` in the list of `owner` (also of the branch `name` of a whole)."""
    return f"{owner}/{name}" if owner else name


def owner_of(path: str) -> str:
    """The path of the owner of the list that a step stands in; of a branch: its whole."""
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    """The last name of a path or place, without its index."""
    return place_of(path).rpartition("/")[2]


def item_path(whole: str, index: int) -> str:
    """The path of an item of a map, from 0."""
    return f"{whole}[{index}]"


def whole_of_item(path: str) -> str:
    """The path of the map that an item belongs to."""
    return path.rpartition("[")[0]


def index_of_item(path: str) -> int:
    """The index of an item in its map."""
    return int(path.rpartition("[")[2].removesuffix("]"))


def visit_path(path: str, visit: int) -> str:
    """Where the row of an earlier visit is kept while it may have to be undone."""
    return f"{path.partition('#')[0]}#{visit}"


def live_path(path: str) -> str:
    """The path without the visit: what workers and readers are told."""
    return path.partition("#")[0]
