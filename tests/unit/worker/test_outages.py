"""A server that is away is told of once, then seldom, and so is its return."""

import logging

import pytest

from towpath_worker.outages import OutageLog

LOGGER = "towpath.worker.transport"


class Clock:
    """Milliseconds, as a test says."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and message of what was logged since the last question."""
    lines = [(each.levelname, each.message) for each in caplog.records]
    caplog.clear()
    return lines


def test_an_outage_is_told_at_once_with_the_setting_then_ever_more_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    clock = Clock()
    log = OutageLog("nats://wrong:4222", clock=clock)
    log.failed("refused")
    ((level, message),) = told(caplog)
    assert level == "WARNING"
    for word in ("url=nats://wrong:4222", "error=refused", "TOWPATH_NATS_URL"):
        assert word in message
    seen: list[int] = []
    for second in range(1, 600):
        clock.now = 1_000 + second * 1_000
        log.failed("refused")
        seen += [second for _ in told(caplog)]
    assert seen == [30, 90, 210, 450]
    log.over()
    assert told(caplog) == [("INFO", "nats_connected url=nats://wrong:4222")]
    log.failed("refused")
    assert len(told(caplog)) == 1, "the next outage is another one"


def test_a_new_reason_is_told_at_once_but_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    log = OutageLog("nats://wrong:4222", clock=Clock())
    for number in range(100):
        log.failed(f"reason {number}")
        log.failed("reason 0")
    assert len(told(caplog)) == 5


def test_a_second_connection_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    log = OutageLog("nats://wrong:4222", aloud=False, clock=Clock())
    log.failed("refused")
    log.over()
    assert told(caplog) == []


def test_who_is_not_let_in_is_told_what_says_who_it_is(caplog: pytest.LogCaptureFixture) -> None:
    OutageLog("nats://right:4222", clock=Clock()).failed("nats: 'Authorization Violation'")
    ((_, message),) = told(caplog)
    assert "TOWPATH_NATS_PASSWORD" in message
    assert "TOWPATH_NATS_URL" not in message
