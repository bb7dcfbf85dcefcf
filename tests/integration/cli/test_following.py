"""Verbs that go on: watch, logs -f, deploy --watch."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import background, fail, succeed
from tests.support.eventually import eventually_sync
from tests.support.processes import RealProcess, towpath

Environment = dict[str, str]

WORKER = """
from towpath_worker import Context, TerminalError, Worker

worker = Worker("stock")

@worker.task("stock.do")
def do(input: dict, ctx: Context) -> dict:
    ctx.logger.warning("doing %s", input["n"])
    if input["n"] == 13:
        raise TerminalError("unlucky")
    return {"done": input["n"]}
"""


@pytest.fixture
def follower(environment: Environment) -> Iterator[list[RealProcess]]:
    """Processes that the test has started; closed in the end."""
    processes: list[RealProcess] = []
    yield processes
    for process in processes:
        process.close()


@pytest.fixture(scope="module")
def worker(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("worker")
    (folder / "stock.py").write_text(WORKER)
    process = background(environment, ["worker", "stock:worker"], folder)
    yield
    process.close()


def test_watch_shows_what_happens_until_the_run_has_settled(
    environment: Environment, follower: list[RealProcess]
) -> None:
    run_id = succeed(environment, ["start", "approval", "--key", "watched"]).strip()
    watch = background(environment, ["watch", "approval/watched"])
    follower.append(watch)
    eventually_sync(lambda: "run-started" in watch.output())
    assert watch.running()
    succeed(environment, ["signal", run_id, "approved"])
    assert watch.wait() == 0
    words = [line.split()[1:] for line in watch.output().splitlines()]
    assert [line[0] for line in words] == ["run-started", "step-completed", "run-completed"]
    assert words[1][1:3] == ["wait", "signal=approved"]


def test_watch_tells_what_operators_did(environment: Environment) -> None:
    steps = "[{name: w, wait: {signal: go}}, {name: b, pass: '${ 1 / input }'}]"
    succeed(environment, ["deploy", "-"], stdin=f"{{workflow: hopeless, steps: {steps}}}")
    run_id = succeed(environment, ["start", "hopeless", "--input", "0"]).strip()
    for verb in ("pause", "resume"):
        succeed(environment, [verb, "run", run_id, "--by", "ann"])
    succeed(environment, ["signal", run_id, "go"])
    assert fail(environment, ["result", run_id])[0] == 6
    succeed(environment, ["retry", run_id, "--by", "ann", "--json"])
    watched = towpath("watch", run_id, environment=environment)
    assert watched.returncode == 6
    told = [line.split()[1] for line in watched.stdout.splitlines()]
    assert [each for each in told if each.startswith("run-")] == [
        "run-started", "run-paused", "run-resumed", "run-failed", "run-retried", "run-failed",
    ]  # fmt: skip


def test_watch_of_a_run_that_fails_says_so(environment: Environment, worker: None) -> None:
    run_id = succeed(environment, ["start", "work", "--input", '{"n": 13}']).strip()
    done = background(environment, ["watch", run_id])
    try:
        assert done.wait() == 6
        assert "step-failed   do" in done.output()
        assert "unlucky" in done.output()
        assert done.errors() == f"towpath: run {run_id} is failed: TerminalError: unlucky\n"
    finally:
        done.close()


def test_watch_in_json_is_an_event_a_line(environment: Environment) -> None:
    run_id = succeed(environment, ["start", "echo", "--input", "7"]).strip()
    events = succeed(environment, ["watch", run_id, "--json"]).json_lines()
    assert [event["type"] for event in events] == ["run-started", "step-completed", "run-completed"]
    later = succeed(
        environment, ["watch", run_id, "--json", "--after-seq", str(events[0]["seq"])]
    ).json_lines()
    assert later == events[1:]


def test_watch_can_be_interrupted(environment: Environment, follower: list[RealProcess]) -> None:
    run_id = succeed(environment, ["start", "approval"]).strip()
    watch = background(environment, ["watch", run_id])
    follower.append(watch)
    eventually_sync(lambda: "run-started" in watch.output())
    watch.popen.send_signal(signal.SIGINT)
    assert watch.wait() == 130
    assert watch.errors() == "towpath: interrupted\n"
    succeed(environment, ["cancel", run_id])


def test_logs_show_what_tasks_logged_and_follow_until_the_end(
    environment: Environment, worker: None
) -> None:
    run_id = succeed(environment, ["start", "work", "--input", '{"n": 1}']).strip()
    followed = succeed(environment, ["logs", "-f", run_id])
    assert followed.split()[1:] == ["warning", "do#1", "doing", "1"]
    assert succeed(environment, ["logs", run_id]) == followed
    lines = succeed(environment, ["logs", run_id, "--json"]).json()["lines"]
    assert [(line["step"], line["level"], line["message"]) for line in lines] == [
        ("do", "warning", "doing 1")
    ]
    by_line = succeed(environment, ["logs", "--follow", "--json", run_id]).json_lines()
    assert by_line == lines
    assert succeed(environment, ["logs", run_id, "--step", "other"]) == ""


def test_deploy_watch_deploys_each_change_and_survives_a_fault(
    environment: Environment, follower: list[RealProcess], tmp_path: Path
) -> None:
    file = tmp_path / "changing.yaml"

    def write(value: str) -> None:
        file.write_text(f"workflow: changing\nsteps: [{{name: a, {value}}}]\n")

    write("pass: 1")
    watch = background(environment, ["deploy", str(file), "--watch"])
    follower.append(watch)
    eventually_sync(lambda: "changing is now version 1." in watch.output())
    write("passs: 2")
    eventually_sync(lambda: "passs" in watch.errors())
    file.write_text("workflow: [")
    eventually_sync(lambda: "not YAML" in watch.errors())
    write("pass: 2")
    eventually_sync(lambda: "changing is now version 2." in watch.output())
    write("pass: 1")
    eventually_sync(lambda: "changing already is version 1." in watch.output())
    assert watch.running()
    watch.popen.send_signal(signal.SIGINT)
    assert watch.wait() == 130


def test_deploy_watch_in_json_is_a_value_a_line(
    environment: Environment, follower: list[RealProcess], tmp_path: Path
) -> None:
    file = tmp_path / "lines.yaml"
    file.write_text("workflow: lines\nsteps: []\n")
    watch = background(environment, ["deploy", str(file), "--watch", "--json"])
    follower.append(watch)
    eventually_sync(lambda: "\n" in watch.output())
    file.write_text("workflow: lines\nsteps: [{name: a, pass: 1}]\n")
    eventually_sync(lambda: watch.output().count("\n") == 2)
    refused, deployed = (json.loads(line) for line in watch.output().splitlines())
    assert refused["error"]["details"]
    assert deployed["version"] == 1


def test_deploy_watch_needs_a_file(environment: Environment) -> None:
    status, said = fail(environment, ["deploy", "-", "--watch"])
    assert (status, said) == (
        2, "towpath: --watch needs a FILE: standard input does not change\n",
    )  # fmt: skip
    status, said = fail(environment, ["deploy", "missing.yaml", "--watch"])
    assert (status, said) == (2, "towpath: missing.yaml: the file does not exist\n")
