"""The connections of one process: workers with the same options share one.

A link is a connection for pulls and reports and a keeper with a connection of its own. Slots are
never shared: a queue that is busy must not keep another from being served.
"""

import asyncio

from towpath_worker.keeper import Keeper
from towpath_worker.options import ConnectionOptions
from towpath_worker.transport import Connection


class Link:
    """A connection and its keeper. Both are there, open or not, until the last user is gone."""

    def __init__(self, options: ConnectionOptions, *, name: str) -> None:
        self.connection = Connection(options, name=name)
        self.keeper = Keeper(options, name=name)
        self.users = 0
        self._opening = asyncio.Lock()
        self._opened = False

    async def open(self) -> None:
        """Connect, once, however long it takes. Raises ConnectionOptionsError when a file of the
        options is unusable."""
        async with self._opening:
            if not self._opened:
                await self.connection.open()
                self._opened = True

    async def close(self) -> None:
        """End both."""
        self.keeper.stop()
        await self.connection.close()


class Links:
    """Who shares what. For one event loop."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._links: dict[ConnectionOptions, Link] = {}

    def take(self, options: ConnectionOptions) -> Link:
        """The link of these options, with its keeper running. Raises ConnectionOptionsError when a
        file of the options is unusable."""
        link = self._links.get(options)
        if link is None:
            link = Link(options, name=self._name)
            link.connection.check()
            link.keeper.start()
            self._links[options] = link
        link.users += 1
        return link

    async def give_back(self, options: ConnectionOptions) -> None:
        """The last one to give it back closes it."""
        link = self._links[options]
        link.users -= 1
        if link.users == 0:
            del self._links[options]
            await link.close()
