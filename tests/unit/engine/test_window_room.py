"""What a decision may dispatch is known when it is made: whatever does not fit, waits."""

from collections.abc import Collection

import pytest

from tests.support.store_builders import LIMITS, a_run, a_step, parse
from towpath_engine.bus.nats_bus import NatsBus
from towpath_engine.core.effects import Decision, DispatchStep
from towpath_engine.core.events import ResumeRequested
from towpath_engine.core.model import Cause
from towpath_engine.metrics import Metrics
from towpath_engine.services.admission import Admitting
from towpath_engine.services.clock import Clock, Identity
from towpath_engine.services.shell import Shell
from towpath_engine.services.windows import Windows
from towpath_engine.services.work import Work
from towpath_engine.settings import Settings
from towpath_engine.store.admission import Pauses
from towpath_engine.store.memory import MemoryStore
from towpath_engine.wiring import bus_settings

WINDOW = 5
EVENT = ResumeRequested(seed="0" * 32, cause=Cause(type="resume"))


def a_shell() -> Shell:
    def submit(work: Work) -> None:
        raise AssertionError(work)

    settings = Settings()
    store = MemoryStore(limits=LIMITS, parse=parse)
    clock = Clock(store)
    return Shell(
        store=store, bus=NatsBus(bus_settings(settings)), clock=clock, identity=Identity(clock),
        metrics=Metrics(), prefix=settings.prefix, submit=submit,
    )  # fmt: skip


class Sharing:
    """Windows of so many engines, and what was said to be held."""

    def __init__(self, engines: int = 1) -> None:
        self.held: list[str] = []
        self.windows = Windows(
            a_shell(), dispatches_max=WINDOW, engines=lambda: engines, tops_up=lambda _: True
        )

    def admitting(self) -> Admitting:
        def on_held(windows: Collection[str]) -> None:
            self.held += windows

        pauses = Pauses(epoch=0)
        return Admitting(self.windows, pauses, frozenset(), on_held=on_held)


def dispatching(mail: int, post: int = 0) -> Decision:
    """A decision that dispatches so many steps to each of two queues."""
    queues = ["mail"] * mail + ["post"] * post
    effects = tuple(
        DispatchStep(
            path=f"s{n}", token=f"t{n}", queue=queue, level=2, body=b"{}", dispatch_no=1,
            ttl_seconds=None,
        )
        for n, queue in enumerate(queues)
    )  # fmt: skip
    return Decision(run=a_run(), effects=effects)


def test_what_fits_passes_and_what_does_not_closes_its_queue() -> None:
    admitting = Sharing().admitting()
    assert admitting.overfull(dispatching(WINDOW, WINDOW)) == {}
    assert admitting.overfull(dispatching(WINDOW + 1, WINDOW)) == {"mail": 0}
    admitting.count(dispatching(2, 1))
    assert admitting.overfull(dispatching(3, 4)) == {}
    assert admitting.overfull(dispatching(4, 5)) == {"mail": 0, "post": 0}
    admitting.forget()
    assert admitting.overfull(dispatching(WINDOW, WINDOW)) == {}


@pytest.mark.parametrize("engines", [3, 100])
def test_a_queue_that_was_never_met_has_no_more_room_than_the_share_of_an_engine(
    engines: int,
) -> None:
    admitting = Sharing(engines).admitting()
    assert admitting.overfull(dispatching(1)) == {"mail": 0}


def test_a_queue_that_is_closed_takes_nothing_whatever_the_windows_say() -> None:
    admitting = Sharing().admitting()
    assert admitting.through(EVENT) is EVENT
    assert admitting.through(EVENT, closed={"mail": 0}).gate.full == {"mail": 0}
    admitting.count(dispatching(0, WINDOW))
    assert admitting.through(EVENT, closed={"mail": 0}).gate.full == {"mail": 0, "post": 0}


def test_what_windows_hold_is_said_once_it_is_committed_and_not_before() -> None:
    sharing = Sharing()
    steps = [a_step(f"s{n}", held_by=by) for n, by in enumerate(["window:mail", "queue:x", None])]
    decision = Decision(run=a_run(), changed=tuple(steps))
    failed, committed = sharing.admitting(), sharing.admitting()
    failed.count(decision)
    failed.forget()
    failed.spend()
    committed.count(decision)
    assert sharing.held == []
    committed.spend()
    assert sharing.held == ["window:mail"]
