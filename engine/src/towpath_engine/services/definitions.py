"""Parsed workflow versions, cached: a version never changes, so neither does its cache entry."""

import asyncio
from collections import OrderedDict

from towpath_engine.core.definition import Definition
from towpath_engine.core.expressions.limits import ExpressionLimits
from towpath_engine.core.parse import parse_definition
from towpath_engine.store.interface import Store

_PARSE_BYTES_ON_LOOP = 16 * 1024
"""Documents above this are parsed in a thread: compiling their expressions takes a while."""


class Definitions:
    """(workflow, version) -> Definition, at most `versions_max` of them in memory."""

    def __init__(self, store: Store, *, versions_max: int, limits: ExpressionLimits) -> None:
        self._store = store
        self._limits = limits
        self._versions_max = versions_max
        self._cache: OrderedDict[tuple[str, int], Definition] = OrderedDict()

    async def get(self, workflow: str, version: int) -> Definition | None:
        """The parsed version, or None when it was never deployed.

        Raises StoreUnavailable.
        """
        found = self._cache.get((workflow, version))
        if found is not None:
            self._cache.move_to_end((workflow, version))
            return found
        row = await self._store.get_workflow(workflow, version)
        if row is None:
            return None
        if len(row.document) > _PARSE_BYTES_ON_LOOP:
            definition = await asyncio.to_thread(self._parse_stored, row.document)
        else:
            definition = self._parse_stored(row.document)
        self.put(workflow, version, definition)
        return definition

    async def parse_new(self, document: bytes) -> Definition:
        """A document that somebody wants to deploy. Raises DefinitionRefused with all faults."""
        return await asyncio.to_thread(parse_definition, document, self._limits)

    def _parse_stored(self, document: bytes) -> Definition:
        return parse_definition(document, self._limits.for_stored())

    def put(self, workflow: str, version: int, definition: Definition) -> None:
        """Keep a version that was just deployed or read."""
        self._cache[(workflow, version)] = definition
        while len(self._cache) > self._versions_max:
            self._cache.popitem(last=False)
