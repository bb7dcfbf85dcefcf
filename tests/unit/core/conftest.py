"""Fixtures of the core's tests."""

import pytest

from tests.support.scenario import Story


@pytest.fixture(params=["kept", "reloaded"])
def loading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test twice: with the run as each decision leaves it in memory, and with the run as it
    is loaded before each event."""
    monkeypatch.setattr(Story, "reloads", request.param == "reloaded")
    return str(request.param)
