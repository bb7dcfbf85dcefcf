"""Parsed definitions of versions that reads need, at most a few hundred in memory."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from towpath_engine.core.definition import Definition

Parse = Callable[[bytes], Definition]

_KEPT_MAX: Final = 256


class DefinitionCache:
    """The least recently used go first. Versions are immutable, so none is ever stale."""

    def __init__(self, parse: Parse) -> None:
        self._parse = parse
        self._kept: OrderedDict[tuple[str, int], Definition] = OrderedDict()

    def get(self, workflow: str, version: int) -> Definition | None:
        """The definition if it is in memory."""
        found = self._kept.get((workflow, version))
        if found is not None:
            self._kept.move_to_end((workflow, version))
        return found

    def add(self, workflow: str, version: int, document: bytes) -> Definition:
        """Parse and keep a stored document."""
        definition = self._parse(document)
        self._kept[workflow, version] = definition
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return definition
