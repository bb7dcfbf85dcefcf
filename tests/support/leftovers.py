"""No test leaves a process behind, running or dead: held to at the end of every session."""

from collections.abc import Iterator

import psutil
import pytest

from tests.support.eventually import eventually_sync


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Our children at the end are those of the beginning; zombies count."""
    ourselves = psutil.Process()
    before = {child.pid for child in ourselves.children(recursive=True)}
    yield

    def nothing_new() -> bool:
        left = [child for child in ourselves.children(recursive=True) if child.pid not in before]
        assert not left, f"these processes are left: {left}"
        return True

    eventually_sync(nothing_new, deadline_seconds=60.0)
