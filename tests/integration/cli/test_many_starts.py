"""`towpath start-many`: each line on its own, and the line named."""

import json
import re
from pathlib import Path

from tests.support.command_line import fail, succeed
from tests.support.processes import towpath

Environment = dict[str, str]

MANY = 2_500
"""More than go into one message."""


def test_each_line_of_a_file_starts_a_run_in_order(
    environment: Environment, tmp_path: Path
) -> None:
    file = tmp_path / "starts.jsonl"
    lines = [{"workflow": "echo", "input": n, "key": f"f-{n}", "tags": ["file"]} for n in range(3)]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    run_ids = succeed(environment, ["start-many", str(file)]).split()
    outputs = [succeed(environment, ["result", run_id]).strip() for run_id in run_ids]
    assert outputs == ["0", "1", "2"]
    listed = succeed(environment, ["list", "--tag", "file", "--json"]).json()["runs"]
    assert {run["run_id"] for run in listed} == set(run_ids)


def test_a_bad_line_behind_the_first_lot_says_how_many_were_started(
    environment: Environment,
) -> None:
    lines = "".join(f'{{"key": "before-{n}"}}\n' for n in range(2_000)) + "{\n"
    arguments = ["start-many", "-", "--workflow", "approval"]
    done = towpath(*arguments, environment=environment, stdin=lines)
    assert (done.returncode, len(done.stdout.split())) == (2, 2_000)
    assert "-:2001: not JSON" in done.stderr
    assert done.stderr.endswith("; 2000 of the 2000 lines before were started\n")


def test_lines_may_be_inputs_of_one_workflow(environment: Environment) -> None:
    lines = "".join(f'{{"n": {n}}}\n' for n in range(2))
    said = succeed(environment, ["start-many", "-", "--workflow", "echo", "--inputs"], stdin=lines)
    assert [succeed(environment, ["result", each]).json() for each in said.split()] == [
        {"n": 0},
        {"n": 1},
    ]


def test_more_lines_than_a_message_takes_are_started_all(environment: Environment) -> None:
    lines = "".join(f'{{"key": "m-{n}"}}\n' for n in range(MANY))
    arguments = ["start-many", "-", "--workflow", "approval", "--json"]
    first = succeed(environment, arguments, stdin=lines).json_lines()
    assert [each["line"] for each in first] == list(range(1, MANY + 1))
    assert not any(each["deduplicated"] for each in first)
    again = succeed(environment, arguments, stdin=lines).json_lines()
    assert [each["run_id"] for each in again] == [each["run_id"] for each in first]
    assert all(each["deduplicated"] for each in again)


def test_a_refused_line_is_told_and_the_others_start(environment: Environment) -> None:
    lines = '{"workflow": "echo"}\n{"workflow": "nothing"}\n{"workflow": "echo"}\n'
    done = towpath("start-many", "-", environment=environment, stdin=lines)
    assert done.returncode == 5
    assert len(done.stdout.split()) == 2
    told = done.stderr.splitlines()
    assert re.match(r"towpath: -:2: .*\(workflow_not_found\)$", told[0])
    assert told[1] == "towpath: 1 of the starts were refused"
    in_json = towpath("start-many", "-", "--json", environment=environment, stdin=lines)
    found = [json.loads(line) for line in in_json.stdout.splitlines()]
    assert [each.get("error", {}).get("code") for each in found] == [
        None, "workflow_not_found", None,
    ]  # fmt: skip


def test_a_line_that_is_no_start_is_named_and_nothing_of_its_lot_is_started(
    environment: Environment,
) -> None:
    for line, fault in [
        ("{", "-:2: not JSON"),
        ('{"workflow": "echo", "inputs": 1}', "-:2: a start has no field inputs"),
        ('{"input": 1}', "-:2: no workflow: name it in the line, or with --workflow"),
        ('{"workflow": "echo", "key": " "}', "-:2: key: ' ' is not allowed"),
        ('{"workflow": "echo", "key": 5}', "-:2: Expected `str | null`, got `int` - at `$.key`"),
        ("[1]", "-:2: Expected `object`, got `array`"),
    ]:
        stdin = f'{{"workflow": "echo", "tags": ["never"]}}\n{line}\n'
        status, said = fail(environment, ["start-many", "-"], stdin=stdin)
        assert status == 2
        assert fault in said
        assert said.endswith("; nothing was started\n")
        assert said.count("\n") == 1
    assert succeed(environment, ["list", "--tag", "never", "--json"]).json()["runs"] == []


def test_a_file_that_is_not_there_and_a_missing_workflow_are_usage(
    environment: Environment,
) -> None:
    status, said = fail(environment, ["start-many", "missing.jsonl"])
    assert (status, said) == (2, "towpath: missing.jsonl: the file does not exist\n")
    status, said = fail(environment, ["start-many", "-", "--inputs"])
    assert (status, said) == (2, "towpath: --inputs needs --workflow: lines name none\n")
