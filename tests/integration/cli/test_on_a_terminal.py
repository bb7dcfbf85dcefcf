"""What a person sees: colours, tables as wide as the terminal, values over several lines."""

import json

import pytest

from tests.support.command_line import succeed
from tests.support.processes import towpath
from tests.support.terminals import towpath_on_a_terminal

Environment = dict[str, str]


@pytest.fixture(scope="module")
def run_id(environment: Environment) -> str:
    value = json.dumps({"text": "long " * 60, "wide": "日本語"})
    return succeed(environment, ["start", "echo", "--input", value, "--key", "screen"]).strip()


def test_a_list_fits_the_terminal_and_has_colours(environment: Environment, run_id: str) -> None:
    only = ("--workflow", "echo", "--key", "screen")
    screen = towpath_on_a_terminal("list", *only, environment=environment, columns=80)
    assert screen.status == 0
    assert max(len(line) for line in screen.lines) <= 80
    assert screen.colours
    line = next(line for line in screen.raw.splitlines() if run_id in line)
    assert "\x1b[32mcompleted\x1b[0m" in line


def test_a_run_shows_its_steps_and_cuts_long_values(environment: Environment, run_id: str) -> None:
    screen = towpath_on_a_terminal("get", run_id, environment=environment, columns=100)
    assert max(len(line) for line in screen.lines) <= 100
    assert any(line.startswith("input") and line.endswith("…") for line in screen.lines)
    titles = next(line.split() for line in screen.lines if line.startswith("step"))
    assert titles == ["step", "kind", "status", "attempt", "output"]


def test_a_history_is_read_whole_on_eighty_columns(environment: Environment) -> None:
    run_id = succeed(environment, ["start", "approval", "--key", "read"]).strip()
    succeed(environment, ["cancel", run_id, "--by", "ann", "--reason", "the customer has left us"])
    screen = towpath_on_a_terminal("history", run_id, environment=environment, columns=80)
    assert max(len(line) for line in screen.lines) <= 80
    assert "…" not in screen.text
    assert "cancel by ann: the customer has left us" in screen.text
    # The time of day, not the half of a date.
    assert all(line.split()[1].endswith("Z") for line in screen.lines[1:] if line[0].isdigit())


def test_the_steps_of_a_run_are_in_the_order_of_its_list(environment: Environment) -> None:
    names = ["zeta", "alpha", "middle", "beta"]
    steps = [{"name": name, "pass": 1} for name in names]
    succeed(environment, ["deploy", "-"], stdin=json.dumps({"workflow": "ordered", "steps": steps}))
    run_id = succeed(environment, ["start", "ordered"]).strip()
    shown = succeed(environment, ["get", run_id])
    assert [line.split()[0] for line in shown.partition("\n\n")[2].splitlines()[1:]] == names


def test_a_pipe_gets_the_whole_values_without_colours(
    environment: Environment, run_id: str
) -> None:
    done = towpath("get", run_id, environment=environment)
    assert "\x1b" not in done.stdout
    assert "…" not in done.stdout
    assert "long " * 60 in done.stdout


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(
    environment: Environment, run_id: str, variable: dict[str, str]
) -> None:
    screen = towpath_on_a_terminal("list", environment={**environment, **variable})
    assert screen.status == 0
    assert not screen.colours
    assert run_id in screen.text


def test_the_width_can_be_told(environment: Environment, run_id: str) -> None:
    wide = towpath_on_a_terminal("get", run_id, environment={**environment, "COLUMNS": "500"})
    assert "long " * 60 in wide.text
    narrow = towpath_on_a_terminal("history", run_id, environment={**environment, "COLUMNS": "70"})
    assert max(len(line) for line in narrow.lines) <= 70


def test_an_output_is_spread_over_lines_on_a_terminal_only(
    environment: Environment, run_id: str
) -> None:
    screen = towpath_on_a_terminal("output", run_id, environment=environment)
    assert json.loads(screen.text)["wide"] == "日本語"
    assert len(screen.lines) == 4
    assert succeed(environment, ["output", run_id]).count("\n") == 1


def test_a_value_cannot_send_the_terminal_a_control_character(environment: Environment) -> None:
    evil = json.dumps("\x1b[2Jgone\x07")
    run_id = succeed(environment, ["start", "echo", "--input", evil, "--tag", "x\x1b[2J"]).strip()
    for verb in ("get", "history", "watch"):
        screen = towpath_on_a_terminal(verb, run_id, environment=environment)
        assert "\x1b[2J" not in screen.raw
        assert "\x07" not in screen.raw


def test_errors_are_one_line_on_a_terminal_too(environment: Environment) -> None:
    screen = towpath_on_a_terminal("get", "echo/nobody", environment=environment)
    assert screen.status == 4
    assert screen.lines == ["towpath: no run of workflow 'echo' has or had the key 'nobody'"]
