"""Branches and items at the command line: bounded, below any step on demand, and replayed."""

from pathlib import Path

from tests.support.command_line import fail, succeed
from tests.support.processes import towpath

Environment = dict[str, str]


def _each(environment: Environment, count: int) -> str:
    """A run of so many items, settled."""
    values = str(list(range(count)))
    run_id = succeed(environment, ["start", "each", "--input", values]).strip()
    assert succeed(environment, ["result", run_id]).json() == list(range(count))
    return run_id


def test_the_first_steps_below_each_step_are_shown_in_order_and_all_on_demand(
    environment: Environment,
) -> None:
    run_id = _each(environment, 30)
    told = towpath("get", run_id, environment=environment)
    lines = [line.split()[0] for line in told.stdout.splitlines() if line.startswith("lines")]
    assert lines[:4] == ["lines", "lines[0]", "lines[0]/one", "lines[0]/two"]
    assert len(lines) == 1 + 50
    assert f"`towpath get {run_id} --under lines` shows them" in told.stderr
    under = succeed(environment, ["get", run_id, "--under", "lines[29]"])
    assert [line.split()[0] for line in under.splitlines() if line.startswith("lines")] == [
        "lines[29]/one", "lines[29]/two",
    ]  # fmt: skip
    steps = succeed(environment, ["get", run_id, "--json"]).json()["steps"]
    assert len(steps) == 1 + 3 * 30
    assert steps[0]["parts"] == {"total": 30, "started": 30, "open": 0, "failed": 0}
    assert succeed(environment, ["output", run_id, "--step", "lines[4]/two"]).json() == 4


def test_a_step_that_is_not_there_is_not_found(environment: Environment) -> None:
    run_id = _each(environment, 1)
    status, said = fail(environment, ["get", run_id, "--under", "nowhere"])
    assert status == 4
    assert "step_not_found" in said


def test_a_history_with_items_replays(environment: Environment, tmp_path: Path) -> None:
    run_id = _each(environment, 200)
    file = tmp_path / "history.json"
    file.write_text(succeed(environment, ["history", run_id, "--export", "-"]))
    assert succeed(environment, ["replay", str(file)]).strip().endswith("the same")
