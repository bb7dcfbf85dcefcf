"""Folders that Postgres' unprivileged user can enter; pytest's own are closed to others."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="towpath-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
