"""The verbs against a running Towpath: what they print, and how they fail."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.support.eventually import eventually_sync
from tests.support.processes import DevProcess, RealProcess, towpath

DEFINITION = """
workflow: order
input: {type: object, required: [total]}
steps:
  - name: approval
    when: input.total > 100
    wait: {signal: approved, timeout: 1h}
  - name: reserve
    task: stock.reserve
    queue: stock
    retry: {max_attempts: 1}
"""

WORKER = """
from towpath_worker import TerminalError, Worker

worker = Worker("stock")
not_a_worker = 3

@worker.task("stock.reserve")
def reserve(order: dict) -> dict:
    if order["total"] == 13:
        raise TerminalError("unlucky")
    return {"reserved": order["total"]}
"""


@pytest.fixture(scope="module")
def dev() -> Iterator[DevProcess]:
    process = DevProcess("--ephemeral")
    yield process
    process.close()


@pytest.fixture(scope="module")
def environment(dev: DevProcess) -> dict[str, str]:
    found = {"TOWPATH_NATS_URL": dev.ready["nats_url"], "TOWPATH_PREFIX": dev.ready["prefix"]}
    done = towpath("deploy", "-", environment=found, stdin=DEFINITION)
    assert done.stdout == "Workflow order is now version 1.\n", done.stderr
    return found


class Said(str):
    """What a command printed."""

    __slots__ = ()

    def json(self) -> dict[str, object]:
        return json.loads(self)


def succeed(environment: dict[str, str], arguments: Sequence[str]) -> Said:
    done = towpath(*arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Said(done.stdout)


def fail(environment: dict[str, str], arguments: Sequence[str], stdin: str = "") -> tuple[int, str]:
    """Status and the sentence on stderr; nothing is printed on stdout."""
    done = towpath(*arguments, environment=environment, stdin=stdin)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.returncode, done.stderr


def start(environment: dict[str, str], total: int, *more: str) -> str:
    said = succeed(environment, ["start", "order", "--input", f'{{"total": {total}}}', *more])
    return said.strip()


def test_a_run_from_start_to_result(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "stock.py").write_text(WORKER)
    worker = RealProcess(
        [*_python(), "worker", "stock:worker"], environment=environment, working_dir=tmp_path
    )
    try:
        run_id = start(environment, 500, "--key", "a/b", "--tag", "x", "--context", '{"by": "me"}')
        again = succeed(
            environment, ["start", "order", "--input", '{"total": 1}', "--key", "a/b", "--json"]
        )
        assert again.json() == {"run_id": run_id, "deduplicated": True}
        succeed(environment, ["signal", "order/a/b", "approved", "--payload", '{"by": "chef"}'])
        output = succeed(environment, ["result", run_id])
        assert output.json() == {"reserved": 500}
        run = succeed(environment, ["get", run_id, "--json"]).json()
        assert (run["status"], run["tags"], run["context"]) == ("completed", ["x"], {"by": "me"})
        listed = succeed(environment, ["list", "--tag", "x", "--json"]).json()
        assert [row["run_id"] for row in _rows(listed, "runs")] == [run_id]
        transitions = _rows(
            succeed(environment, ["history", run_id, "--json"]).json(), "transitions"
        )
        assert [row["seq"] for row in transitions] == list(range(1, len(transitions) + 1))
        assert transitions[-1]["what"] == "run-completed"
        for verb in ("get", "history"):
            assert "completed" in succeed(environment, [verb, run_id])
        waited = succeed(environment, ["start", "order", "--input", '{"total": 7}', "--wait"])
        assert waited.json() == {"reserved": 7}
        status, said = fail(environment, ["start", "order", "--input", '{"total": 13}', "--wait"])
        assert status == 6
        assert "unlucky" in said
        worker.terminate()
        assert worker.wait() == 0
        told = worker.errors()
        assert "worker_started queue=stock tasks=stock.reserve" in told
        assert "attempt_failed task=stock.reserve" in told
        assert "TerminalError: unlucky" in told
    finally:
        worker.close()


def test_a_cancelled_run_says_so(environment: dict[str, str]) -> None:
    run_id = start(environment, 500)
    said = succeed(environment, ["cancel", run_id, "--reason", "too dear"])
    assert said == f"Run {run_id} is cancelled.\n"
    status, said = fail(environment, ["result", run_id])
    assert status == 6
    assert "is cancelled" in said


def test_a_repeated_start_says_that_nothing_was_started(environment: dict[str, str]) -> None:
    run_id = start(environment, 500, "--key", "twice")
    again = towpath(
        "start", "order", "--input", '{"total": 5}', "--key", "twice", environment=environment
    )
    assert (again.returncode, again.stdout) == (0, f"{run_id}\n")
    assert "nothing was started" in again.stderr
    succeed(environment, ["cancel", run_id])


def test_the_tables_tell_what_a_run_waits_for(environment: dict[str, str]) -> None:
    run_id = start(environment, 500)
    steps = _rows(succeed(environment, ["get", run_id, "--json"]).json(), "steps")
    assert str(steps[0]["wake_at"]) in succeed(environment, ["get", run_id])
    told = succeed(environment, ["history", run_id])
    assert re.search(r"step-waiting +approval .* start +.*signal=approved", told)
    wrong = towpath("signal", run_id, "aproved", environment=environment)
    assert (wrong.returncode, "is the name right?" in wrong.stderr) == (0, True)
    told = succeed(environment, ["history", run_id])
    assert re.search(r"run-signalled .* signal aproved by \S+@\S+ +.*signal=aproved", told)
    succeed(environment, ["cancel", run_id])


def test_a_worker_finds_nats_by_the_settings_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "stock.py").write_text(WORKER)
    file = tmp_path / "towpath.toml"
    file.write_text(
        f'nats_url = "{environment["TOWPATH_NATS_URL"]}"\n'
        f'prefix = "{environment["TOWPATH_PREFIX"]}"\n'
    )
    worker = RealProcess(
        [*_python(), "worker", "stock:worker", "--config", str(file)], working_dir=tmp_path
    )
    try:
        waited = succeed(environment, ["start", "order", "--input", '{"total": 8}', "--wait"])
        assert waited.json() == {"reserved": 8}
    finally:
        worker.close()


def test_a_run_that_goes_on_times_out(environment: dict[str, str]) -> None:
    run_id = start(environment, 500)
    status, said = fail(environment, ["result", run_id, "--timeout", "0.2"])
    assert (status, said) == (7, f"towpath: run {run_id} is still waiting\n")


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["get", "01890a5d-ac96-774b-bcce-b302099a8057"], 4, "run_not_found"),
        (["result", "01890a5d-ac96-774b-bcce-b302099a8057"], 4, "run_not_found"),
        (["signal", "order/none", "approved"], 4, "key_not_found"),
        (["start", "nothing"], 4, "workflow_not_found"),
        (["start", "order", "--input", "{}"], 5, "schema_failed"),
        (["start", "order", "--input", "{"], 2, "--input:1: not JSON"),
        (["start", "order", "--input", '{"a": 1, "a": 2}'], 2, "duplicate key"),
        (["start", "order", "--context", "[]"], 2, "--context must be a JSON object"),
        (["start", "order", "--input-file", "missing.json"], 2, "does not exist"),
        (["start", "bad name"], 5, "workflow"),
        (["get", "not-an-id"], 2, "is not a run id"),
        (["signal", "not-an-id", "approved"], 2, "nor WORKFLOW/KEY"),
        (["list", "--status", "odd"], 5, "status"),
        (["deploy", "missing.yaml"], 2, "missing.yaml: the file does not exist"),
        (["worker", "missing_module:worker"], 2, "no module 'missing_module'"),
        (["worker", "json"], 2, "not of the form MODULE:NAME"),
        (["worker", "json:nothing"], 2, "the module json has no 'nothing'"),
        (["worker", "json:loads"], 2, "is not a towpath_worker.Worker"),
        (["get", "01890a5d-ac96-774b-bcce-b302099a8057", "--prefix", "UPPER"], 2, "prefix"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_status(
    environment: dict[str, str], arguments: list[str], status: int, sentence: str
) -> None:
    found, said = fail(environment, arguments)
    assert sentence in said
    assert found == status
    assert said.count("\n") == 1


def test_every_fault_of_a_definition_is_on_a_line_of_its_own(environment: dict[str, str]) -> None:
    status, said = fail(environment, ["deploy", "-"], stdin="steps: []\nnonsense: 1\n")
    assert status == 5
    assert len(said.splitlines()) == 4
    assert re.search(r"^  nonsense: ", said, re.MULTILINE)
    status, local = fail(environment, ["validate", "-"], stdin="steps: []\nnonsense: 1\n")
    assert status == 5
    assert local.splitlines()[1:] == said.splitlines()[1:]


def test_a_file_that_is_no_yaml_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "order.yaml"
    file.write_text("a: 1\nb: [\n")
    status, said = fail({}, ["validate", str(file)])
    assert status == 2
    assert re.match(r"towpath: \S+order\.yaml:[23]: not YAML", said)


def test_without_nats_it_says_where_it_looked() -> None:
    status, said = fail({}, ["list", "--nats-url", "nats://me:s3cr3t@127.0.0.1:1"])
    assert status == 3
    assert said.startswith("towpath: no NATS server takes us at nats://127.0.0.1:1 (")
    assert said.endswith(
        "), as --nats-url says: is `towpath dev` running? "
        "TOWPATH_NATS_URL or --nats-url name another server\n"
    )
    assert "s3cr3t" not in said


def test_without_an_engine_it_says_so(environment: dict[str, str]) -> None:
    status, said = fail(environment, ["list", "--prefix", "nobody"])
    assert status == 3
    assert "no Towpath engine of prefix 'nobody' answers run.list at nats://" in said


def test_without_postgres_migrate_and_serve_say_so(dev: DevProcess) -> None:
    nowhere = {"TOWPATH_POSTGRES_URL": "postgresql://me:s3cr3t@127.0.0.1:1/x"}
    status, said = fail(nowhere, ["migrate"])
    assert status == 3
    assert "s3cr3t" not in said
    status, said = fail(nowhere | {"TOWPATH_NATS_URL": dev.ready["nats_url"]}, ["serve"])
    assert status == 3
    assert "s3cr3t" not in said


def test_serve_refuses_a_schema_that_was_not_migrated(dev: DevProcess) -> None:
    environment = {
        "TOWPATH_NATS_URL": dev.ready["nats_url"],
        "TOWPATH_POSTGRES_URL": dev.ready["postgres_url"],
        "TOWPATH_POSTGRES_SCHEMA": "fresh",
        "TOWPATH_PREFIX": "fresh",
        "TOWPATH_HTTP_PORT": "0",
    }
    status, said = fail(environment, ["serve"])
    assert status == 5
    assert "towpath migrate" in said
    applied = succeed(environment, ["migrate", "--json"]).json()["applied"]
    assert isinstance(applied, list)
    assert applied
    assert succeed(environment, ["migrate"]) == "Schema fresh is up to date.\n"
    engine = RealProcess([*_python(), "serve"], environment=environment)
    try:
        eventually_sync(lambda: "engine_ready" in engine.errors())
        engine.terminate()
        assert engine.wait() == 0
        events = [json.loads(line)["event"] for line in engine.errors().splitlines()]
        assert events[-1] == "engine_stopped"
    finally:
        engine.close()


def test_an_engine_that_is_still_starting_can_be_stopped(dev: DevProcess) -> None:
    environment = {
        "TOWPATH_NATS_URL": "nats://127.0.0.1:1",
        "TOWPATH_POSTGRES_URL": dev.ready["postgres_url"],
        "TOWPATH_HTTP_PORT": "0",
    }
    engine = RealProcess([*_python(), "serve"], environment=environment)
    try:
        eventually_sync(lambda: "bus_connection_failed" in engine.errors())
        engine.terminate()
        assert engine.wait() == 0
        assert "engine_ready" not in engine.errors()
        assert "engine_stopped" in engine.errors()
    finally:
        engine.close()


def test_settings_show_where_a_value_comes_from() -> None:
    said = succeed({"TOWPATH_HTTP_PORT": "9999"}, ["settings", "--json"]).json()
    by_name = {row["name"]: row for row in _rows(said, "settings")}
    assert by_name["http_port"]["value"] == "9999"
    assert by_name["http_port"]["source"] == "environment"
    assert by_name["prefix"]["source"] == "default"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["start"],
        ["dev", "--nats-port", "x"],
        ["start", "order", "--delay-ms", "-5"],
        ["history", "01890a5d-ac96-774b-bcce-b302099a8057", "--after-seq", "-1"],
    ],
)
def test_wrong_arguments_are_a_matter_of_usage(arguments: list[str]) -> None:
    status, said = fail({}, arguments)
    assert status == 2
    assert said.startswith("towpath")
    assert "--help`" in said
    assert said.count("\n") == 1


def test_output_that_nobody_reads_ends_the_command_quietly() -> None:
    piped = RealProcess(["/bin/sh", "-c", f"{' '.join(_python())} settings | true"])
    try:
        assert piped.wait() == 0
        assert piped.errors() == ""
    finally:
        piped.close()


def _rows(reply: dict[str, object], name: str) -> list[dict[str, object]]:
    return msgspec.convert(reply[name], list[dict[str, object]])


def _python() -> list[str]:
    return [sys.executable, "-m", "towpath_engine"]
