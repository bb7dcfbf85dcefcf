"""Where settings come from, and what is refused."""

from typing import Any

import pytest

from towpath_worker import ConnectionOptions, Worker, WorkerOptions
from towpath_worker.options import connection_options


def test_an_argument_beats_the_environment_and_that_the_default() -> None:
    environ = {"TOWPATH_NATS_URL": "nats://a:1, nats://b:2", "TOWPATH_PREFIX": "mine"}
    default = connection_options(environ={})
    assert (default.servers, default.prefix) == (["nats://127.0.0.1:4222"], "towpath")
    given = connection_options(environ=environ)
    assert (given.servers, given.prefix) == (["nats://a:1", "nats://b:2"], "mine")
    assert connection_options("nats://c:3", "other", environ=environ).prefix == "other"


def test_values_out_of_range_are_refused_by_name() -> None:
    bad: list[dict[str, Any]] = [{"slots": 0}, {"slots": 10_001}, {"drain_timeout_seconds": -1.0}]
    for fields in bad:
        (name,) = fields
        with pytest.raises(ValueError, match=name):
            WorkerOptions(**fields)
    with pytest.raises(ValueError, match="slots"):
        Worker("q", slots=0)
    with pytest.raises(ValueError, match="prefix"):
        ConnectionOptions(prefix="Not.Good")
    with pytest.raises(ValueError, match="names no server"):
        ConnectionOptions(nats_url=" , ")
    with pytest.raises(ValueError, match="_INBOX"):
        ConnectionOptions(inbox_prefix="mine")


async def test_a_worker_without_a_task_does_not_serve() -> None:
    with pytest.raises(RuntimeError, match="no task"):
        await Worker("q").serve()
