"""Which `towpath dev` is found from a folder, and when it is believed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from towpath_worker.dev_server import STATE_FILE, running_dev_server
from towpath_worker.options import DEFAULT_NATS_URL, connection_options


def state(folder: Path, pid: int, *, port: int = 24_222, prefix: str = "shop") -> None:
    """As `towpath dev` writes it."""
    file = folder / STATE_FILE
    file.parent.mkdir()
    ready = {
        "event": "ready",
        "nats_url": f"nats://127.0.0.1:{port}",
        "prefix": prefix,
        "pids": {"dev": pid, "nats": 1},
    }
    file.write_text(json.dumps(ready))


def dead_pid() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_the_server_of_the_folder_is_found_from_it_and_from_below(tmp_path: Path) -> None:
    state(tmp_path, os.getpid())
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    for folder in (tmp_path, below):
        found = running_dev_server(folder)
        assert found is not None
        assert (found.nats_url, found.prefix) == ("nats://127.0.0.1:24222", "shop")
        assert found.folder == tmp_path.resolve()


def test_the_nearest_server_that_lives_is_the_one(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    state(tmp_path, os.getpid(), port=24_111)
    state(below, dead_pid(), port=24_222)
    found = running_dev_server(below)
    assert found is not None
    assert found.nats_url.endswith(":24111")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nats_url": "nats://x"}', '{"pids": {}}'])
def test_a_file_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / ".towpath").mkdir()
    (tmp_path / STATE_FILE).write_text(text)
    assert running_dev_server(tmp_path) is None


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_a_process_that_cannot_be_is_not_alive(tmp_path: Path, pid: int) -> None:
    state(tmp_path, pid)
    assert running_dev_server(tmp_path) is None


def test_options_take_the_server_of_the_folder_where_nothing_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state(tmp_path, os.getpid())
    monkeypatch.chdir(tmp_path)
    found = connection_options(environ={})
    assert (found.nats_url, found.prefix) == ("nats://127.0.0.1:24222", "shop")
    assert connection_options(environ={"TOWPATH_PREFIX": "mine"}).prefix == "mine"
    assert connection_options(prefix="mine", environ={}).nats_url == "nats://127.0.0.1:24222"


@pytest.mark.parametrize(
    "environ",
    [
        {"TOWPATH_NATS_URL": DEFAULT_NATS_URL},
        {"TOWPATH_NATS_TOKEN": "secret"},
        {"TOWPATH_NATS_CREDENTIALS_FILE": "/x.creds"},
    ],
)
def test_who_says_anything_about_nats_is_not_sent_to_the_server_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    state(tmp_path, os.getpid())
    monkeypatch.chdir(tmp_path)
    found = connection_options(environ=environ)
    assert (found.nats_url, found.prefix) == (DEFAULT_NATS_URL, "towpath")
    assert connection_options("nats://other:1", environ={}).nats_url == "nats://other:1"
