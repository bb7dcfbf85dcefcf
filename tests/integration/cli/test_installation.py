"""Workflows, queues, workers and dead letters."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.command_line import background, fail, succeed
from tests.support.eventually import eventually_sync
from tests.support.processes import DevProcess, towpath
from tests.support.wire_client import connected

Environment = dict[str, str]

GONE = """
from towpath_worker import Worker

worker = Worker("gone")

@worker.task("gone.do")
def do(input: dict) -> None: ...
"""
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_workflows_are_listed_and_one_is_shown_with_its_definition(
    environment: Environment,
) -> None:
    assert "echo" in succeed(environment, ["workflows"])
    listed = succeed(environment, ["workflows", "--json"]).json()["workflows"]
    assert {"approval", "echo", "work"} <= {each["workflow"] for each in listed}
    shown = succeed(environment, ["workflows", "echo"])
    fields, _, definition = shown.partition("\n\n")
    assert "workflow     echo" in fields
    assert json.loads(definition)["steps"][0]["name"] == "say"
    status, said = fail(environment, ["workflows", "echo", "--version", "99"])
    assert status == 4
    assert "version_not_found" in said
    assert fail(environment, ["workflows", "--version", "1"])[0] == 2


def test_queues_show_what_waits_and_that_nobody_pulls(environment: Environment) -> None:
    definition = "{workflow: lonely, steps: [{name: a, task: t, queue: lonely}]}"
    succeed(environment, ["deploy", "-"], stdin=definition)
    run_id = succeed(environment, ["start", "lonely"]).strip()

    def waiting() -> bool:
        queues = succeed(environment, ["queues", "--json"]).json()["queues"]
        lonely = next(each for each in queues if each["queue"] == "lonely")
        return lonely["ready"] + lonely["dispatched"] == 1 and lonely["workers"] == 0

    eventually_sync(waiting)
    assert "lonely" in succeed(environment, ["queues"])
    assert succeed(environment, ["workers", "--queue", "lonely", "--json"]).json() == {
        "workers": []
    }
    succeed(environment, ["cancel", run_id])


def test_workers_that_have_gone_are_shown_on_demand_only(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "gone.py").write_text(GONE)
    worker = background(environment, ["worker", "gone:worker"], tmp_path)

    def listed(*options: str) -> list[str]:
        arguments = ["workers", "--queue", "gone", *options]
        return towpath(*arguments, environment=environment).stdout.splitlines()[1:]

    try:
        eventually_sync(lambda: len(listed()) == 1)
    finally:
        worker.close()
    eventually_sync(lambda: listed() == [])
    (line,) = listed("--all")
    assert line.split()[1:3] == ["gone", "gone"]
    said = towpath("workers", "--queue", "gone", environment=environment).stderr
    assert said == "towpath: 1 more, of which nothing is heard any longer: give --all to see them\n"
    (whole,) = succeed(environment, ["workers", "--queue", "gone", "--json"]).json()["workers"]
    assert not whole["live"]


def test_a_worker_that_drains_is_shown_as_such(environment: Environment, dev: DevProcess) -> None:
    definition = "{workflow: drained, steps: [{name: a, task: t, queue: drained}]}"
    succeed(environment, ["deploy", "-"], stdin=definition)
    beat = {"worker_id": "w1", "tasks": ["t"], "slots": 4, "sdk": "test/1", "tokens": ["t"]}

    async def say(body: bytes) -> None:
        async with connected(dev.ready["nats_url"], dev.ready["prefix"]) as wire:
            await wire.client.request(f"{wire.prefix}.heartbeat.drained", body, timeout=60)

    asyncio.run(say(json.dumps({**beat, "draining": True}).encode()))

    def drains() -> bool:
        lines = succeed(environment, ["workers", "--queue", "drained"]).splitlines()[1:]
        return [line.split()[:3] for line in lines] == [["w1", "drained", "draining"]]

    eventually_sync(drains)


def test_a_signal_that_no_step_waits_for_is_told(environment: Environment) -> None:
    run_id = succeed(environment, ["start", "approval"]).strip()
    wrong = towpath("signal", run_id, "aproved", environment=environment)
    assert (wrong.returncode, wrong.stdout) == (0, f"Run {run_id} keeps it.\n")
    assert wrong.stderr.startswith("towpath: no step of the workflow waits for 'aproved': ")
    assert succeed(environment, ["signal", run_id, "approved"]) == f"Run {run_id} got it.\n"


def test_a_forgotten_input_is_told(environment: Environment) -> None:
    definition = "{workflow: typed, input: {type: object}, steps: [{name: a, pass: 1}]}"
    succeed(environment, ["deploy", "-"], stdin=definition)
    status, said = fail(environment, ["start", "typed"])
    assert status == 5
    assert "no input was given: add --input '" in said
    status, said = fail(environment, ["start", "typed", "--input", "7"])
    assert status == 5
    assert "no input was given" not in said


def test_dead_letters_are_listed_shown_replayed_and_discarded(
    environment: Environment, dev: DevProcess
) -> None:
    async def send_nonsense() -> None:
        async with connected(dev.ready["nats_url"], dev.ready["prefix"]) as wire:
            for number in range(3):
                await wire.put(f"in.nonsense.a.b.n{number}", b"\x1b[2J garbage")

    asyncio.run(send_nonsense())

    def letters() -> list[dict[str, str]]:
        return succeed(environment, ["dead-letters", "list", "--json"]).json()["dead_letters"]

    eventually_sync(lambda: len(letters()) == 3)
    first, second, _ = (letter["id"] for letter in letters())
    cut = towpath("dead-letters", "list", "--limit", "2", environment=environment)
    assert len(cut.stdout.splitlines()) == 3
    assert cut.stderr == "towpath: there are more: give --all or a larger --limit\n"
    shown = succeed(environment, ["dead-letters", "get", first])
    assert "bad_subject" in shown
    assert "garbage" in shown
    replayed = towpath("dead-letters", "replay", first, second, environment=environment)
    assert replayed.returncode == 5
    assert replayed.stdout.count(" failed") == 2
    assert replayed.stderr == "towpath: 2 of 2 dead letters could not be applied\n"
    assert succeed(environment, ["dead-letters", "discard", first]) == "1 dead letter discarded.\n"
    assert len(letters()) == 2
    assert succeed(environment, ["dead-letters", "discard", "--all", "--json"]).json() == {
        "discarded": 2
    }
    assert letters() == []
    for verb in ("replay", "discard"):
        gone = towpath("dead-letters", verb, second, environment=environment)
        assert gone.returncode == 4
        assert gone.stderr.startswith("towpath: 1 of 1 are not among the dead letters; ")


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["dead-letters", "get", UNKNOWN], 4, "dead_letter_not_found"),
        (["dead-letters", "get", "999"], 2, "'999' is not the id of a dead letter: `towpath dead"),
        (["dead-letters", "discard", "999"], 2, "'999' is not the id of a dead letter"),
        (
            ["worker", "shop.py:worker"],
            2,
            "'shop.py:worker' names a file, and a module is wanted: ",
        ),
        (["worker", "./a/shop.py"], 2, "try 'a.shop:NAME'"),
        (["start", "echo", "--input", "@x.json"], 2, "give --input-file x.json"),
        (["start", "echo", "--input", "pyproject.toml"], 2, "give --input-file pyproject.toml"),
        (["start", "echo", "--input", "{a: 1}"], 2, "quote it for the shell, as in --input '{"),
        (["dead-letters", "replay"], 2, "give their ids, or --all"),
        (["dead-letters", "discard", UNKNOWN, "--all"], 2, "give their ids, or --all"),
        (["dead-letters"], 2, "WHAT"),
        (["pause", "queu"], 2, "did you mean 'queue'?"),
        (["strat"], 2, "did you mean 'start'?"),
        (["start", "bad name"], 5, "workflow: is not allowed; use a letter, then at most 63"),
        (["list", "--from", "yesterday"], 2, "'yesterday' is no instant: give"),
        (["start", "echo", "--at", "soon"], 2, "'soon' is no instant"),
        (["start", "echo", "--priority", "urgent"], 2, "use critical, high, normal, low"),
        (["start", "echo", "--key", " x"], 2, "key: ' x' is not allowed; use 1 to 256"),
        (["history", UNKNOWN, "--payloads"], 2, "give --json, too"),
    ],
)
def test_a_mistake_is_one_line_with_the_field_and_the_fix(
    environment: Environment, arguments: list[str], status: int, sentence: str
) -> None:
    found, said = fail(environment, arguments)
    assert sentence in said
    assert found == status
    assert said.count("\n") == 1
    assert "[A-Za-z]" not in said
