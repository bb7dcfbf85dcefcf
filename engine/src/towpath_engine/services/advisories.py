"""Messages of P_ADV: the broker gave a dispatch up. Handled one by one, outside the hot path."""

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.bus.interface import Bus, InboundMessage
from towpath_engine.services.dispatch_watch import DispatchWatch

_WAITING_MAX = 1_000


class Advisories:
    """`receive` queues, `run_once` handles. What does not fit is delivered again by the server."""

    def __init__(self, *, bus: Bus, watch: DispatchWatch) -> None:
        self._bus = bus
        self._watch = watch
        self._waiting: list[InboundMessage] = []
        self.on_added = lambda: None

    def receive(self, message: InboundMessage) -> None:
        """Take one advisory over from the bus."""
        if len(self._waiting) >= _WAITING_MAX:
            self._bus.forget([message])
            return
        self._waiting.append(message)
        self.on_added()

    async def run_once(self) -> int:
        """Handle what has gathered; returns how many. Without a bus the server sends it again."""
        waiting, self._waiting = self._waiting, []
        for index, message in enumerate(waiting):
            try:
                await self._watch.advisory(message)
            except BusUnavailable:
                self._bus.forget(waiting[index:])
                return index
            except BaseException:
                self._bus.forget(waiting[index:])  # or their credit is lost
                raise
        return len(waiting)
