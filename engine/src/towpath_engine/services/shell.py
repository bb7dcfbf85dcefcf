"""What nearly every service needs, in one value: the two servers, the clock, the metrics."""

from collections.abc import Callable

from msgspec import Struct

from towpath_engine.bus.interface import Bus
from towpath_engine.metrics import Metrics
from towpath_engine.services.clock import Clock, Identity
from towpath_engine.services.work import Work
from towpath_engine.store.interface import Store


class Shell(Struct, frozen=True, kw_only=True):
    """Built once by `engine.Engine`. `submit` hands work to the pipeline."""

    store: Store
    bus: Bus
    clock: Clock
    identity: Identity
    metrics: Metrics
    prefix: str
    submit: Callable[[Work], None]
