"""Runs by id and by key, every filter of the list, and what operates a run."""

import json
import re

import pytest

from tests.support.command_line import fail, succeed
from tests.support.eventually import eventually_sync
from tests.support.processes import towpath

Environment = dict[str, str]

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_a_run_may_be_named_by_its_key_wherever_a_run_is_named(environment: Environment) -> None:
    run_id = succeed(environment, ["start", "approval", "--key", "a/b c"]).strip()
    target = "approval/a/b c"
    for verb in ("get", "explain", "history", "logs"):
        assert succeed(environment, [verb, target]) == succeed(environment, [verb, run_id])
    succeed(environment, ["signal", target, "approved"])
    output = succeed(environment, ["result", target]).json()
    assert output["name"] == "approved"
    # Settled: the key finds the newest run that had it.
    assert succeed(environment, ["output", target]).json() == output
    assert succeed(environment, ["get", target, "--json"]).json()["run_id"] == run_id
    again = succeed(environment, ["start", "approval", "--key", "a/b c"]).strip()
    assert succeed(environment, ["get", target, "--json"]).json()["run_id"] == again
    succeed(environment, ["cancel", target, "--reason", "enough", "--by", "ann"])
    told = succeed(environment, ["history", target])
    assert re.search(r"run-cancelled .* cancel by ann: enough\n", told)


@pytest.mark.parametrize(
    "verb", ["get", "explain", "history", "logs", "watch", "result", "output", "retry", "restart"]
)
def test_a_run_that_is_not_there_is_not_found_by_either_name(
    environment: Environment, verb: str
) -> None:
    status, said = fail(environment, [verb, UNKNOWN])
    assert (status, said.count("\n")) == (4, 1)
    assert "run_not_found" in said
    status, said = fail(environment, [verb, "echo/nobody"])
    assert status == 4
    assert said == "towpath: no run of workflow 'echo' has or had the key 'nobody'\n"
    status, said = fail(environment, [verb, "nonsense"])
    assert status == 2
    assert "`towpath list` shows both" in said


def test_the_list_has_every_filter(environment: Environment) -> None:
    old = succeed(environment, ["start", "echo", "--key", "l-1", "--tag", "listed"]).strip()
    new = succeed(environment, ["start", "approval", "--key", "l-2", "--tag", "listed"]).strip()
    created = succeed(environment, ["get", new, "--json"]).json()["created_at"]

    def listed(*filters: str) -> list[str]:
        arguments = ["list", "--tag", "listed", "--json", *filters]
        return [run["run_id"] for run in succeed(environment, arguments).json()["runs"]]

    assert listed() == [new, old]
    assert listed("--workflow", "echo") == [old]
    assert listed("--status", "waiting") == [new]
    assert listed("--key", "l-1", "--workflow", "echo") == [old]
    assert listed("--from", created) == [new]
    assert listed("--to", created) == [old]
    assert listed("--from", "1h") == [new, old]
    assert listed("--to", "2020-01-01") == []
    page = succeed(environment, ["list", "--tag", "listed", "--limit", "1", "--json"]).json()
    assert [run["run_id"] for run in page["runs"]] == [new]
    assert listed("--cursor", page["next_cursor"]) == [old]
    assert listed("--all", "--limit", "1") == [new, old]
    succeed(environment, ["cancel", new])


def test_a_list_that_is_cut_says_how_to_go_on(environment: Environment) -> None:
    for _ in range(2):
        succeed(environment, ["start", "echo", "--tag", "two"])
    status_and_said = succeed_with_notice(environment, ["list", "--tag", "two", "--limit", "1"])
    assert re.fullmatch(r"towpath: there are more: give --all, or --cursor \S+\n", status_and_said)


def succeed_with_notice(environment: Environment, arguments: list[str]) -> str:
    from tests.support.processes import towpath

    done = towpath(*arguments, environment=environment)
    assert done.returncode == 0
    return done.stderr


def test_a_start_replaces_or_rejects_when_its_key_is_taken(environment: Environment) -> None:
    first = succeed(environment, ["start", "approval", "--key", "taken"]).strip()
    status, said = fail(
        environment, ["start", "approval", "--key", "taken", "--on-conflict", "reject"]
    )
    assert status == 5
    assert said.endswith("(key_conflict)\n")
    second = succeed(
        environment, ["start", "approval", "--key", "taken", "--on-conflict", "replace"]
    ).strip()
    assert second != first
    assert succeed(environment, ["get", first, "--json"]).json()["status"] == "cancelled"
    succeed(environment, ["cancel", second])


def test_explain_says_what_a_run_waits_for(environment: Environment) -> None:
    run_id = succeed(environment, ["start", "approval"]).strip()
    told = succeed(environment, ["explain", run_id])
    assert told.startswith(f"{run_id} (approval, waiting): ")
    assert "'approved'" in told
    whole = succeed(environment, ["explain", run_id, "--json"]).json()
    assert [reason["kind"] for reason in whole["reasons"]] == ["signal"]
    succeed(environment, ["cancel", run_id])
    assert "cancelled" in succeed(environment, ["explain", run_id])


def test_a_failed_run_is_retried_redriven_and_restarted(environment: Environment) -> None:
    definition = {
        "workflow": "fragile",
        "steps": [{"name": "a", "pass": 1}, {"name": "b", "pass": "${ 1 / input.by }"}],
    }
    succeed(environment, ["deploy", "-"], stdin=json.dumps(definition))
    run_id = succeed(environment, ["start", "fragile", "--input", '{"by": 0}']).strip()
    status, _ = fail(environment, ["result", run_id])
    assert status == 6
    planned = succeed(environment, ["retry", run_id, "--dry-run", "--json"]).json()
    assert (planned["steps"], planned["dry_run"]) == (["b"], True)
    assert succeed(environment, ["get", run_id, "--json"]).json()["status"] == "failed"
    assert re.fullmatch(
        rf"Run {run_id} would be failed; again: b\.\nIt is failed now: ExpressionError: .*\n",
        succeed(environment, ["retry", run_id, "--dry-run"]),
    )
    retried = towpath("retry", run_id, "--by", "ann", "--reason", "again", environment=environment)
    # What was asked for was done; that it did not help is said at once.
    assert retried.returncode == 0
    assert retried.stdout == f"Run {run_id} is failed; again: b.\n"
    assert retried.stderr.startswith("towpath: it has ended once more: ExpressionError: ")
    assert fail(environment, ["result", run_id])[0] == 6
    assert fail(environment, ["retry", run_id, "--wait"])[0] == 6
    redrive = ["redrive", run_id, "a", "--request-id", "once-more", "--json"]
    redriven = succeed(environment, redrive).json()
    assert redriven["steps"][0] == "a"
    assert fail(environment, ["result", run_id])[0] == 6
    assert succeed(environment, redrive).json()["deduplicated"] is True
    retry = ["retry", run_id, "--request-id", "once-again", "--json"]
    assert succeed(environment, retry).json()["steps"] == ["b"]
    assert fail(environment, ["result", run_id])[0] == 6
    assert succeed(environment, retry).json()["deduplicated"] is True
    assert fail(environment, ["result", run_id])[0] == 6
    new = succeed(environment, ["restart", run_id, "--request-id", "once"]).strip()
    same = succeed(environment, ["restart", run_id, "--request-id", "once", "--json"]).json()
    assert same == {"run_id": new, "deduplicated": True}
    assert fail(environment, ["restart", run_id, "--wait"])[0] == 6
    shown = succeed(environment, ["get", new, "--json"]).json()
    assert (shown["restarted_from"], shown["input"]) == (run_id, {"by": 0})
    assert "retry by ann: again" in succeed(environment, ["history", run_id])


def test_a_live_run_is_not_retried_and_says_the_fix(environment: Environment) -> None:
    run_id = succeed(environment, ["start", "approval"]).strip()
    for verb in ("retry", "restart"):
        status, said = fail(environment, [verb, run_id])
        assert status == 5
        assert re.search(r"wait for it, or cancel it first.*\(run_not_settled\)", said)
    succeed(environment, ["cancel", run_id])


def test_purge_deletes_what_was_asked_for(environment: Environment) -> None:
    run_ids = [succeed(environment, ["start", "echo", "--tag", "old"]).strip() for _ in range(3)]
    eventually_sync(
        lambda: (
            succeed(environment, ["list", "--tag", "old", "--status", "completed", "--json"]).count(
                "run_id"
            )
            == 3
        )
    )
    assert succeed(environment, ["purge", run_ids[0]]) == "1 run was deleted.\n"
    assert fail(environment, ["get", run_ids[0]])[0] == 4
    by_age = ["purge", "--workflow", "echo", "--settled-before", "2020-01-01", "--json"]
    assert succeed(environment, [*by_age, "--dry-run"]).json() == {
        "purged": 0, "more": False, "dry_run": True,
    }  # fmt: skip
    for arguments in (["purge"], ["purge", run_ids[1], *by_age[1:-1]], by_age[:3]):
        status, said = fail(environment, arguments)
        assert status == 2
        assert "give RUN, or --workflow and --settled-before" in said
