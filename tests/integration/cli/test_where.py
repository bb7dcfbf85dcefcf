"""Which server a command goes to, and how it says so."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import DevProcess, towpath
from tests.support.terminals import towpath_on_a_terminal
from towpath_engine.settings import describe_settings, load_settings

Environment = dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def here(folder: Path) -> Iterator[DevProcess]:
    """A `towpath dev` on this folder, at ports that nobody would guess."""
    process = DevProcess("--data-dir", str(folder / ".towpath"), "--prefix", "project")
    yield process
    process.close()


def test_commands_find_the_server_of_their_folder_without_any_setting(
    here: DevProcess, folder: Path
) -> None:
    (folder / "echo.yaml").write_text("workflow: echo\nsteps: [{name: say, pass: '${ input }'}]\n")
    assert towpath("deploy", "echo.yaml", working_dir=folder).returncode == 0
    below = folder / "below"
    below.mkdir()
    done = towpath("start", "echo", "--input", "7", "--wait", working_dir=below)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    told = towpath("settings", working_dir=folder)
    assert told.stderr.startswith(
        f"towpath: commands, workers and clients go to the `towpath dev` of {folder.resolve()}: "
    )
    assert here.ready["nats_url"] in told.stderr
    listed = json.loads(towpath("settings", "--json", working_dir=folder).stdout)["settings"]
    shown = {each["name"]: (each["value"], each["source"]) for each in listed}
    assert shown["nats_url"] == (here.ready["nats_url"], "towpath dev")
    assert shown["prefix"] == ("project", "towpath dev")
    assert shown["nats_user"] == ("", "default")
    said = towpath("settings", "--json", "--config", os.devnull, working_dir=folder)
    assert (said.returncode, "towpath dev" in said.stdout) == (0, True)
    named = {"TOWPATH_NATS_URL": "nats://127.0.0.1:1"}
    elsewhere = towpath("settings", environment=named, working_dir=folder)
    assert ("towpath dev" in elsewhere.stdout, elsewhere.stderr) == (False, "")


def test_names_of_settings_are_whole_on_any_terminal(folder: Path) -> None:
    whole = {entry.variable for entry in describe_settings(load_settings({}))}
    screen = towpath_on_a_terminal("settings", environment={"HOME": str(folder)})
    assert whole <= {line.split()[0] for line in screen.lines if line.strip()}
    assert all(len(line) <= 80 for line in screen.lines)


def test_a_setting_beats_the_server_of_the_folder(
    here: DevProcess, folder: Path, environment: Environment
) -> None:
    done = towpath("workflows", "approval", environment=environment, working_dir=folder)
    assert done.returncode == 0
    done = towpath("list", "--nats-url", "nats://127.0.0.1:1", working_dir=folder)
    assert done.returncode == 3


def test_on_a_terminal_what_changes_something_names_the_server(environment: Environment) -> None:
    screen = towpath_on_a_terminal("start", "approval", "--tag", "where", environment=environment)
    url, prefix = environment["TOWPATH_NATS_URL"], environment["TOWPATH_PREFIX"]
    assert screen.lines[0] == f"towpath: at {url}, prefix {prefix} (TOWPATH_NATS_URL)"
    run_id = screen.lines[1]
    piped = towpath("cancel", run_id, environment=environment)
    assert piped.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["--nats-url", "nats://127.0.0.1:1"], {}, "as --nats-url says"),
        ([], {"TOWPATH_NATS_URL": "nats://127.0.0.1:1"}, "as TOWPATH_NATS_URL says"),
    ],
)
def test_a_server_that_is_not_there_is_named_with_who_named_it(
    arguments: list[str], environ: dict[str, str], said: str
) -> None:
    done = towpath("list", *arguments, environment=environ)
    assert done.returncode == 3
    assert "nats://127.0.0.1:1" in done.stderr
    assert said in done.stderr


def test_a_stopped_server_is_not_looked_for(tmp_path: Path) -> None:
    stopped = DevProcess("--data-dir", str(tmp_path / ".towpath"))
    stopped.close()
    done = towpath("settings", working_dir=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_where_a_server_has_run_and_runs_no_more_a_command_says_where_it_goes_instead(
    tmp_path: Path,
) -> None:
    DevProcess("--data-dir", str(tmp_path / ".towpath")).close()
    below = tmp_path / "below"
    below.mkdir()
    told = f"towpath: no `towpath dev` of {tmp_path.resolve()} runs now: going to nats://"
    for folder in (tmp_path, below):
        lines = towpath("list", "--prefix", "nobody", working_dir=folder).stderr.splitlines()
        assert [line.startswith(told) for line in lines] == [True, False]
    # Who says anything about NATS means a certain server.
    named = {"TOWPATH_NATS_URL": "nats://127.0.0.1:1"}
    assert told not in towpath("list", environment=named, working_dir=tmp_path).stderr
