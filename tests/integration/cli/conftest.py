"""One `towpath dev` for all tests of the command line, and workflows that need no worker."""

from collections.abc import Iterator

import pytest

from tests.support.command_line import succeed
from tests.support.processes import DevProcess

WORKFLOWS = (
    "{workflow: approval, steps: [{name: wait, wait: {signal: approved, timeout: 1h}}]}",
    "{workflow: each, steps: [{name: lines, map: {items: '${ input }', steps: "
    "[{name: one, pass: '${ item }'}, {name: two, pass: '${ prev }'}]}}]}",
    "{workflow: echo, steps: [{name: say, pass: '${ input }'}]}",
    # Nobody works on this queue but the worker that a test starts.
    "{workflow: work, steps: [{name: do, task: stock.do, queue: stock, retry: {max_attempts: 1}}]}",
)


@pytest.fixture(scope="session")
def dev() -> Iterator[DevProcess]:
    process = DevProcess("--ephemeral")
    yield process
    process.close()


@pytest.fixture(scope="session")
def environment(dev: DevProcess) -> dict[str, str]:
    found = {"TOWPATH_NATS_URL": dev.ready["nats_url"], "TOWPATH_PREFIX": dev.ready["prefix"]}
    for definition in WORKFLOWS:
        succeed(found, ["deploy", "-"], stdin=definition)
    return found
