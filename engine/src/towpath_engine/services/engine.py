"""One engine: all services, wired to one store and one bus, started and stopped in order."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import structlog

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.bus.interface import Bus
from towpath_engine.health import ReadinessCheck
from towpath_engine.metrics import Metrics
from towpath_engine.services.admission import Admission, partition_of_holder
from towpath_engine.services.advisories import Advisories
from towpath_engine.services.api.router import ApiRouter, RequestReader
from towpath_engine.services.api.verbs import ApiServices, handlers
from towpath_engine.services.apply import Applier
from towpath_engine.services.children import Children
from towpath_engine.services.clock import Clock, Identity
from towpath_engine.services.commit import AfterCommit
from towpath_engine.services.dead_letters import DeadLetters
from towpath_engine.services.definitions import Definitions
from towpath_engine.services.dispatch_watch import DispatchWatch
from towpath_engine.services.draft import Drafting
from towpath_engine.services.gauges import Gauges
from towpath_engine.services.inbound import Inbound
from towpath_engine.services.leases import LEADER_PARTITION, Leases, Partitions
from towpath_engine.services.outbox_relay import OutboxRelay
from towpath_engine.services.parked_sweep import ParkedSweep
from towpath_engine.services.parking import Parking
from towpath_engine.services.pipeline import Pipeline
from towpath_engine.services.progress import PartitionProgress
from towpath_engine.services.purger import Purger
from towpath_engine.services.queues import Queues
from towpath_engine.services.result_waiters import ResultWaiters
from towpath_engine.services.retention import Retention
from towpath_engine.services.run_cache import RunCache
from towpath_engine.services.settled_news import SettledNews
from towpath_engine.services.shell import Shell
from towpath_engine.services.signalling import Signalling
from towpath_engine.services.starting import Starting
from towpath_engine.services.stopped_attempts import StoppedAttempts
from towpath_engine.services.ticker import Ticker
from towpath_engine.services.timer_service import TimerService
from towpath_engine.services.wakes import Wakes
from towpath_engine.services.windows import Windows
from towpath_engine.services.work import Work
from towpath_engine.services.worker_heartbeats import WorkerHeartbeats
from towpath_engine.services.worker_register import WorkerRegister
from towpath_engine.settings import Settings
from towpath_engine.store.errors import StoreUnavailable
from towpath_engine.store.interface import Store
from towpath_engine.wiring import (
    core_limits,
    expression_limits,
    retention_rules,
    wire_limits,
)

log = structlog.get_logger(__name__)

_PAGE = 1_000
"""Rows of one page of a sweep."""
_ADMITTED_PAGE = 500
"""Steps held by the same that are tried again at once."""
_AUDIT_PAGE = 100
"""Dispatches that one audit looks for in the stream: a request each."""
_REACHABLE_SECONDS = 30.0
_LATE_SECONDS_MAX = 60.0
"""How late a pre-emptible timer may fire while its partition is behind (decision 0011)."""


class Engine:
    """Built by `app`. `start` needs a store and a bus that can be reached; later losses are
    waited for."""

    def __init__(self, *, settings: Settings, store: Store, bus: Bus, metrics: Metrics) -> None:
        self._settings = settings
        self._store = store
        self._bus = bus
        self.metrics = metrics
        self._clock = Clock(store)
        self._shell = Shell(
            store=store,
            bus=bus,
            clock=self._clock,
            identity=Identity(self._clock),
            metrics=metrics,
            prefix=settings.prefix,
            submit=self._submit,
        )
        self._definitions = Definitions(
            store,
            versions_max=settings.definition_cache_count_max,
            limits=expression_limits(settings),
        )
        self._queues = Queues(store=store, bus=bus, queues_max=settings.queue_count_max)
        self._waiters = ResultWaiters(store)
        self._purger = Purger(self._shell)
        self._parking = Parking(
            self._shell.identity,
            seconds=settings.park_seconds,
            signals_max=settings.parked_count_max,
        )
        self._leases = Leases(
            self._shell,
            lease_seconds=settings.lease_seconds,
            release_seconds=settings.lease_release_seconds,
        )
        self._build_admission()
        self._build_pipeline()
        self._build_edges()
        self._tickers = self._build_tickers()
        self._started = False

    def _submit(self, work: Work) -> None:
        # Bound late: the services that submit work are parts of what the pipeline is built from.
        self._pipeline.submit(work)

    # Building

    def _build_admission(self) -> None:
        self._windows = Windows(
            self._shell,
            dispatches_max=self._settings.dispatch_window_count_max,
            engines=lambda: self._leases.engines,
            tops_up=lambda queue: self._leases.owns(partition_of_holder(queue)),
        )
        self._admission = Admission(
            self._shell, windows=self._windows, owns=self._leases.owns, page=_ADMITTED_PAGE
        )

    def _build_pipeline(self) -> None:
        settings = self._settings
        self._progress = PartitionProgress(
            self._shell,
            late_seconds_max=_LATE_SECONDS_MAX,
        )
        self._watch = DispatchWatch(
            self._shell,
            leads=self._leads,
            progress=self._progress,
            purge=self._purger.purge,
            audit_after_seconds=settings.dispatch_audit_seconds,
            page=_PAGE,
            audit_page=_AUDIT_PAGE,
        )
        self._stopped = StoppedAttempts(self._shell, leads=self._leads, page=_PAGE)
        self._relay = OutboxRelay(
            self._shell,
            leads=self._leads,
            sweep_max=_PAGE,
            on_stored=self._watch.published,
        )
        self._timers = TimerService(
            self._shell,
            leases=self._leases,
            progress=self._progress,
            heap_max=settings.timer_count_max,
            horizon_seconds=settings.timer_horizon_seconds,
            sweep_seconds=settings.timer_sweep_seconds,
            sweep_max=_PAGE,
        )
        self._cache = RunCache(
            runs_max=settings.run_cache_count_max,
            bytes_max=settings.run_cache_bytes_max,
            metrics=self.metrics,
            owns=self._leases.owns_run,
        )
        self._wakes = Wakes(
            self._shell, leases=self._leases, cache=self._cache, timers=self._timers
        )
        self._pipeline = Pipeline(
            applier=self._build_applier(),
            on_commit=AfterCommit(
                self._shell,
                leases=self._leases,
                windows=self._windows,
                wakes=self._wakes,
                relay=self._relay,
                timers=self._timers,
                watch=self._watch,
                purger=self._purger,
                stopped=self._stopped,
                news=SettledNews(self._shell, leases=self._leases, waiters=self._waiters),
            ),
            confirmed=self._relay.confirmed,
            metrics=self.metrics,
            batch_max=settings.batch_count_max,
            lane_max=max(1, settings.batch_count_max // 2),
            transactions_max=settings.transactions_in_flight_max,
        )

    def _build_applier(self) -> Applier:
        settings = self._settings
        signalling = Signalling(
            prefix=settings.prefix,
            identity=self._shell.identity,
            parking=self._parking,
            metrics=self.metrics,
        )
        return Applier(
            store=self._store,
            clock=self._clock,
            admission=self._admission,
            drafting=Drafting(
                prefix=settings.prefix,
                identity=self._shell.identity,
                grace=timedelta(seconds=settings.outbox_retry_seconds),
            ),
            definitions=self._definitions,
            cache=self._cache,
            starting=Starting(
                definitions=self._definitions,
                identity=self._shell.identity,
                signalling=signalling,
                limits=core_limits(settings),
            ),
            signalling=signalling,
            metrics=self.metrics,
        )

    def _build_edges(self) -> None:
        settings = self._settings
        limits = wire_limits(settings)
        self._dead_letters = DeadLetters(
            self._shell,
            batch_max=settings.batch_count_max,
        )
        self._children = Children(self._shell, leads=self._leads, page=_PAGE)
        self._advisories = Advisories(bus=self._bus, watch=self._watch)
        self._inbound = Inbound(
            self._shell,
            dead_letters=self._dead_letters,
            children=self._children,
            advisory=self._advisories.receive,
            limits=limits,
            require_sender=settings.require_sender,
        )
        reader = RequestReader(limits)
        self._register = WorkerRegister(
            self._shell,
            leads=self._leads,
            forget_after_seconds=settings.worker_forget_seconds,
            workers_max=settings.worker_count_max,
        )
        self._router = ApiRouter(
            handlers=handlers(
                self._shell,
                settings=settings,
                reader=reader,
                services=ApiServices(
                    admission=self._admission,
                    definitions=self._definitions,
                    queues=self._queues,
                    waiters=self._waiters,
                    inbound=self._inbound,
                ),
            ),
            heartbeats=WorkerHeartbeats(
                self._shell,
                queues=self._queues,
                register=self._register,
                limits=limits,
            ),
            metrics=self.metrics,
            limits=limits,
        )
        self._parked = ParkedSweep(
            self._shell,
            leads=self._leads,
            parking=self._parking,
            dead_letters=self._dead_letters,
            page=_PAGE,
        )

    def _build_tickers(self) -> dict[str, Ticker]:
        settings = self._settings
        gauges = Gauges(self._shell, leases=self._leases)
        retention = Retention(self._shell, retention_rules(settings), leads=self._leads)
        duties = {
            "leases": (self._leases.renew, settings.lease_tick_seconds),
            "lease_moves": (self._leases.move, 1.0),
            "clock": (self._clock.sync, settings.clock_sync_seconds),
            "outbox_flush": (self._relay.flush, 1.0),
            "outbox": (self._relay.sweep, settings.outbox_sweep_seconds),
            "timers": (self._timers.fire, self._timers.pause_seconds),
            "timers_held": (self._timers.release, self._timers.release_pause_seconds),
            "timer_sweep": (self._timers.sweep, settings.timer_sweep_seconds),
            "admission": (self._admission.run_once, self._admission.pause_seconds),
            "watch": (self._watch.observe, settings.dispatch_watch_seconds),
            "epoch": (self._watch.check_epoch, settings.stream_check_seconds),
            "audit": (self._watch.audit, self._watch.audit_pause_seconds),
            "advisories": (self._advisories.run_once, settings.dispatch_watch_seconds),
            "dead_letters": (self._dead_letters.flush, 1.0),
            "parked": (self._parked.run_once, settings.parked_sweep_seconds),
            "purger": (self._purger.run_once, 0.5),
            "stopped": (self._stopped.run_once, 0.5),
            "stopped_sweep": (self._stopped.sweep, settings.dispatch_audit_seconds),
            "children": (self._children.sweep, settings.child_sweep_seconds),
            "results": (self._waiters.sweep, 0.5),
            "queues": (self._queues.refresh, 5.0),
            "gauges": (gauges.run_once, settings.reason_sweep_seconds),
            "retention": (retention.run_once, retention.pause_seconds),
            "workers": (self._register.flush, 1.0),
            "workers_prune": (self._register.prune, 60.0),
        }
        tickers = {
            name: Ticker(name, run_once, interval=seconds, metrics=self.metrics)
            for name, (run_once, seconds) in duties.items()
        }
        self._leases.on_told = tickers["leases"].wake
        self._leases.on_moves = tickers["lease_moves"].wake
        self._leases.on_acquired.append(self._on_acquired)
        self._leases.on_lost.append(lambda _: self._cache.doubt())
        self._dead_letters.on_added = tickers["dead_letters"].wake
        self._advisories.on_added = tickers["advisories"].wake
        self._timers.on_armed = tickers["timers"].wake
        self._timers.on_held = tickers["timers_held"].wake
        self._stopped.on_stopped = tickers["stopped"].wake
        self._watch.on_more = tickers["epoch"].wake
        self._admission.on_more = tickers["admission"].wake
        self._windows.on_low = tickers["admission"].wake
        self._wakes.on_resumed = self._admission.told
        self._bus.on_reset(self.metrics.bus_reconnects.inc)
        self._bus.on_reset(self._relay.doubt)
        self._bus.on_reset(tickers["epoch"].wake)
        self._bus.on_reset(tickers["outbox"].wake)
        self._bus.on_reset(tickers["children"].wake)
        self._bus.on_reset(tickers["leases"].wake)
        self._bus.on_reset(tickers["lease_moves"].wake)
        return tickers

    def _leads(self) -> bool:
        return self._leases.leads

    def _on_acquired(self, partitions: Partitions) -> None:
        """Catch up at once with what the owner before has left."""
        self._cache.doubt()
        names = ["timer_sweep", "timers", "timers_held", "admission"]
        if LEADER_PARTITION in partitions:
            names += ["outbox", "epoch", "parked", "children", "gauges"]
        for name in names:
            self._tickers[name].wake()

    # Running

    async def start(self) -> None:
        """Connect, catch up with what a crash left, then take messages and requests.

        Raises BusRefused, BusUnavailable or StoreUnavailable.
        """
        await self._clock.sync()
        await self._bus.start()
        await self._queues.refresh()
        await self._leases.renew()
        await self._admission.catch_up(await self._store.list_queues())
        for ticker in self._tickers.values():
            ticker.start()
        self._bus.on_message(self._inbound.receive)
        self._bus.set_credit(self._settings.pull_credit_count_max)
        self._bus.serve_api(
            self._router.handle,
            concurrency_max=self._settings.api_concurrency,
            polls_max=self._settings.api_poll_count_max,
        )
        await self._until_reachable()
        # The first sweep came before the connection could be used.
        self._tickers["outbox"].wake()
        self._started = True

    async def _until_reachable(self) -> None:
        """Return once the server knows that requests can be sent here: whoever is told that the
        engine is ready must not meet a `no responders`."""
        try:
            async with asyncio.timeout(_REACHABLE_SECONDS):
                while not self._bus.connected:  # noqa: ASYNC110 - the seam has no event for it
                    await asyncio.sleep(0.005)
        except TimeoutError as error:
            raise BusUnavailable("the API could not be offered: the connection was lost") from error

    async def stop(self) -> None:
        """Drain: take nothing new, give the partitions away, finish what was begun, publish it,
        then disconnect."""
        self._bus.set_credit(0)
        await self._children.stop()
        await self._tickers["timers"].stop()
        await self._tickers["timers_held"].stop()
        try:
            async with asyncio.timeout(self._settings.drain_seconds):
                await self._leases.leave()
                await self._pipeline.drain()
                # Its ticker first: two flushes at once would write the same letters twice.
                await self._tickers["dead_letters"].stop()
                await self._dead_letters.flush()
        except (TimeoutError, StoreUnavailable):
            log.warning("drain_cut_short", backlog=self._pipeline.backlog)
        for ticker in self._tickers.values():
            await ticker.stop()
        await self._bus.close()
        try:
            await self._relay.flush()
        except StoreUnavailable:
            log.warning("outbox_not_flushed")  # the next sweep sends these again, with their ids
        await self._pipeline.stop()

    def readiness_checks(self) -> Mapping[str, ReadinessCheck]:
        """For `/readyz`: the engine takes work, NATS is connected, Postgres answers."""
        return {
            "engine": self._engine_ready,
            "nats": self._nats_ready,
            "postgres": self._postgres_ready,
        }

    async def _engine_ready(self) -> str | None:
        return None if self._started else "it is starting"

    async def _nats_ready(self) -> str | None:
        self.metrics.bus_connected.set(1 if self._bus.connected else 0)
        return None if self._bus.connected else "not connected to NATS"

    async def _postgres_ready(self) -> str | None:
        try:
            await self._store.now()
        except StoreUnavailable as error:
            self.metrics.store_connected.set(0)
            return f"Postgres does not answer: {error}"
        self.metrics.store_connected.set(1)
        return None
