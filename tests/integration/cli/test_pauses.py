"""pause, resume, pauses: what the engine does, and what is said of it."""

import pytest

from tests.support.command_line import succeed
from tests.support.processes import towpath

Environment = dict[str, str]


@pytest.mark.parametrize(
    ("what", "target", "name"),
    [
        ("workflow", ["work"], "work"),
        ("workflow", ["work", "--version", "1"], "work@1"),
        ("queue", ["stock"], "stock"),
        ("task", ["stock.do"], "stock.do"),
    ],
)
def test_a_pause_is_made_listed_with_who_and_why_and_lifted(
    environment: Environment, what: str, target: list[str], name: str
) -> None:
    who_and_why = ["--by", "ann", "--reason", "look"]
    subject = f"{what.capitalize()} {name}"
    pause, resume = ["pause", what, *target, *who_and_why], ["resume", what, *target]
    assert succeed(environment, pause) == f"{subject} is paused.\n"
    assert succeed(environment, pause) == f"{subject} was paused already.\n"
    told = succeed(environment, ["pauses"]).splitlines()
    scope = "version" if "@" in name else what
    assert [line.split()[:2] + line.split()[3:] for line in told[1:]] == [
        [scope, name, "ann", "look"]
    ]
    (listed,) = succeed(environment, ["pauses", "--json"]).json()["pauses"]
    assert (listed["scope"], listed["name"], listed["by"]) == (scope, name, "ann")
    changed = succeed(environment, [*resume, "--json"]).json()
    assert changed == {"scope": scope, "name": name, "paused": False, "changed": True}
    assert succeed(environment, resume) == f"{subject} was not paused.\n"
    assert succeed(environment, ["pauses", "--json"]).json() == {"pauses": []}
    succeed(environment, pause)
    assert succeed(environment, resume) == f"{subject} is no longer paused.\n"


def test_a_paused_task_is_not_dispatched_and_says_so(environment: Environment) -> None:
    succeed(environment, ["pause", "task", "stock.do", "--reason", "it harms"])
    run_id = succeed(
        environment, ["start", "work", "--input", '{"n": 1}', "--key", "paused"]
    ).strip()
    (step,) = succeed(environment, ["get", run_id, "--json"]).json()["steps"]
    assert (step["status"], step["held_by"]) == ("ready", "task")
    assert "it harms" in succeed(environment, ["explain", run_id])
    succeed(environment, ["resume", "task", "stock.do"])
    (step,) = succeed(environment, ["get", run_id, "--json"]).json()["steps"]
    assert step["status"] == "dispatched"
    succeed(environment, ["cancel", run_id])


def test_a_run_is_paused_by_its_key_with_who_and_why(environment: Environment) -> None:
    run_id = succeed(environment, ["start", "approval", "--key", "still"]).strip()
    pause = ["pause", "run", "approval/still", "--by", "ann", "--reason", "look"]
    assert succeed(environment, pause) == f"Run {run_id} is paused.\n"
    assert succeed(environment, ["get", run_id, "--json"]).json()["pause"]["by"] == "ann"
    assert "run-paused" in succeed(environment, ["history", run_id])
    resume = ["resume", "run", run_id]
    assert succeed(environment, resume) == f"Run {run_id} is no longer paused.\n"
    assert succeed(environment, resume) == f"Run {run_id} was not paused.\n"
    succeed(environment, ["cancel", run_id])


def test_a_pause_of_a_task_that_nobody_knows_is_made_with_a_warning(
    environment: Environment,
) -> None:
    done = towpath("pause", "task", "stock.doo", environment=environment)
    assert (done.returncode, done.stdout) == (0, "Task stock.doo is paused.\n")
    assert done.stderr.startswith("towpath: no workflow and no worker names a task 'stock.doo': ")
    assert "`towpath resume task stock.doo`" in done.stderr
    succeed(environment, ["resume", "task", "stock.doo"])
    assert succeed(environment, ["pause", "task", "stock.do"]) == "Task stock.do is paused.\n"
    succeed(environment, ["resume", "task", "stock.do"])
