"""The leases of a worker: facts in, actions out."""

from tests.unit.worker.dispatches import a_dispatch
from towpath_protocol.reports import ReleaseReason
from towpath_worker.session import (
    Acknowledge,
    Action,
    Expire,
    GiveBack,
    Interrupt,
    LeaseState,
    Renew,
    Session,
    Start,
)


def a_session(slots: int = 2) -> Session:
    return Session(slots=slots, hold_ms=1_000)


def deliver(session: Session, token: str, *, now_ms: int = 0, known: bool = True) -> list[Action]:
    return session.delivered(
        a_dispatch(token), f"ack.{token}.{now_ms}", known_task=known, now_ms=now_ms
    )


def kinds(actions: list[Action]) -> list[type[Action]]:
    return [type(action) for action in actions]


def test_a_delivery_starts_and_takes_a_slot_until_its_report_is_stored() -> None:
    session = a_session()
    assert kinds(deliver(session, "a")) == [Start]
    assert (session.free, session.tokens) == (1, ("a",))
    session.ended("a")
    assert session.free == 1
    assert session.closed("a", reported=True) == []
    assert (session.free, session.idle) == (2, True)


def test_a_token_that_runs_is_not_started_again_and_its_newest_ack_subject_counts() -> None:
    session = a_session()
    deliver(session, "a")
    (action,) = deliver(session, "a", now_ms=5)
    assert isinstance(action, Renew)
    assert (action.lease.ack_subject, session.free) == ("ack.a.5", 1)


def test_a_token_whose_report_was_stored_is_only_acknowledged() -> None:
    session = a_session()
    deliver(session, "a")
    session.closed("a", reported=True)
    assert deliver(session, "a", now_ms=9) == [Acknowledge("ack.a.9")]
    assert session.idle


def test_a_token_whose_report_was_given_up_may_run_again() -> None:
    session = a_session()
    deliver(session, "a")
    session.closed("a", reported=False)
    assert kinds(deliver(session, "a")) == [Start]


def test_a_delivery_without_a_slot_waits_for_one_and_is_given_back_when_none_comes() -> None:
    session = a_session(slots=1)
    deliver(session, "a")
    assert kinds(deliver(session, "b", now_ms=10)) == [Renew]
    assert kinds(deliver(session, "c", now_ms=20)) == [Renew]
    assert session.free == 0
    (start,) = session.closed("a", reported=True)
    assert isinstance(start, Start)
    assert start.lease.token == "b"
    assert session.tick(1_019) == []
    (back,) = session.tick(1_020)
    assert isinstance(back, GiveBack)
    assert (back.lease.token, back.reason) == ("c", ReleaseReason.INTERRUPTED)
    assert session.tick(5_000) == []
    session.closed("b", reported=True)
    session.closed("c", reported=True)
    assert (session.free, session.idle) == (1, True)


def test_an_unknown_task_is_given_back() -> None:
    session = a_session()
    (back,) = deliver(session, "a", known=False)
    assert isinstance(back, GiveBack)
    assert back.reason is ReleaseReason.UNKNOWN_TASK
    session.closed("a", reported=True)
    assert (session.free, session.idle) == (2, True)


def test_a_cancel_interrupts_once_and_only_what_is_held() -> None:
    session = a_session()
    deliver(session, "a")
    (interrupt,) = session.cancelled("a", "the run was cancelled")
    assert isinstance(interrupt, Interrupt)
    assert interrupt.lease.cancel_reason == "the run was cancelled"
    assert session.cancelled("a", "again") == []
    assert session.cancelled("b", "unknown") == []


def test_what_is_cancelled_before_it_has_a_slot_never_begins_and_is_given_back() -> None:
    session = a_session(slots=1)
    deliver(session, "a")
    deliver(session, "b")
    deliver(session, "c")
    (back,) = session.cancelled("b", "the run was cancelled")
    assert isinstance(back, GiveBack)
    assert (back.lease.token, back.reason) == ("b", ReleaseReason.INTERRUPTED)
    (back,) = session.stale("c")
    assert isinstance(back, GiveBack)
    assert session.closed("b", reported=True) == []
    assert session.closed("c", reported=True) == []
    assert session.closed("a", reported=True) == []
    assert (session.free, session.idle) == (1, True)


def test_a_stale_token_is_interrupted_even_without_a_cancel() -> None:
    session = a_session()
    deliver(session, "a")
    (interrupt,) = session.stale("a")
    assert isinstance(interrupt, Interrupt)
    assert interrupt.lease.stale
    assert session.stale("a") == []


def test_the_attempt_timeout_expires_the_lease_once() -> None:
    session = a_session()
    deliver(session, "a")
    assert session.tick(9_999) == []
    assert kinds(session.tick(10_000)) == [Expire, Interrupt]
    assert session.tick(10_001) == []
    session.closed("a", reported=False)
    assert session.free == 2


def test_a_drain_starts_nothing_and_gives_back_what_outlasts_it() -> None:
    session = a_session(slots=1)
    deliver(session, "a")
    deliver(session, "b")
    (held,) = session.drain(timeout_ms=100, now_ms=0)
    assert isinstance(held, GiveBack)
    assert (held.lease.token, held.reason) == ("b", ReleaseReason.DRAIN)
    (late,) = deliver(session, "c")
    assert isinstance(late, GiveBack)
    assert late.reason is ReleaseReason.DRAIN
    assert session.tick(99) == []
    assert kinds(session.tick(100)) == [GiveBack, Interrupt]
    assert session.tick(101) == []
    for token in "abc":
        session.closed(token, reported=True)
    assert (session.idle, session.free) == (True, 0)


def test_a_second_drain_can_only_shorten_the_first() -> None:
    session = a_session()
    deliver(session, "a")
    session.drain(timeout_ms=1_000, now_ms=0)
    session.drain(timeout_ms=9_000, now_ms=0)
    assert kinds(session.tick(1_000)) == [GiveBack, Interrupt]


def test_a_report_on_its_way_is_left_alone_by_time_and_drain() -> None:
    session = a_session()
    (start,) = deliver(session, "a")
    session.ended("a")
    assert isinstance(start, Start)
    assert start.lease.state is LeaseState.REPORTING
    session.drain(timeout_ms=0, now_ms=0)
    assert session.tick(20_000) == []
