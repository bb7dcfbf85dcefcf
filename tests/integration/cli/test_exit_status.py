"""Every exit status of docs/command-line.md, brought about."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import background, succeed
from tests.support.eventually import eventually_sync
from tests.support.jetstream import JetStreamServer
from tests.support.processes import towpath
from towpath_engine.cli.connection import refusal
from towpath_worker import ApiError

Environment = dict[str, str]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"
NOWHERE = "nats://127.0.0.1:1"

CASES = {
    0: [
        ["list"],
        ["--version"],
        ["settings"],
        ["retry", "fragile/ended"],
        ["start", "approval", "--key", "live"],
    ],
    2: [
        ["list", "--limit", "some"],
        ["nonsense"],
        ["validate", "missing.yaml"],
        ["get", "no-run-id"],
        ["start", "approval", "--key", " blank"],
        ["settings", "--config", "missing.toml"],
        ["worker", "nomodule:worker"],
    ],
    3: [["list", "--nats-url", NOWHERE], ["list", "--prefix", "nobody"]],
    4: [
        ["get", UNKNOWN],
        ["start", "nosuch"],
        ["workflows", "echo", "--version", "99"],
        ["signal", "approval/nokey", "go"],
        ["get", "approval/nokey"],
        ["redrive", "fragile/ended", "nosuch"],
        ["pause", "queue", "nosuch"],
        ["dead-letters", "get", UNKNOWN],
        ["dead-letters", "discard", UNKNOWN],
        ["dead-letters", "replay", UNKNOWN],
    ],
    5: [
        ["validate", "faulty.yaml"],
        ["deploy", "faulty.yaml"],
        ["start", "approval", "--key", "live", "--on-conflict", "reject"],
        ["retry", "approval/live"],
        ["purge", "approval/live"],
        ["start-many", "starts.jsonl"],
    ],
    6: [
        ["result", "fragile/ended"],
        ["watch", "fragile/ended"],
        ["start", "fragile", "--wait"],
        ["retry", "fragile/ended", "--wait"],
        ["redrive", "fragile/ended", "a", "--wait"],
        ["restart", "fragile/ended", "--wait"],
    ],
    7: [
        ["result", "approval/live", "--timeout", "0.2"],
        ["start", "approval", "--key", "live", "--wait", "--timeout", "0.2"],
    ],
    8: [["replay", "altered.json"]],
}  # fmt: skip
BUG, DENIED, INTERRUPTED = 1, 9, 130


@pytest.fixture(scope="module")
def folder(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and runs that the cases name."""
    found = tmp_path_factory.mktemp("statuses")
    fragile = {"workflow": "fragile", "steps": [{"name": "a", "pass": "${ 1 / 0 * size(input) }"}]}
    (found / "faulty.yaml").write_text("workflow: faulty\nsteps: [{name: a, passs: 1}]\n")
    (found / "starts.jsonl").write_text('{"workflow": "nosuch"}\n')
    succeed(environment, ["deploy", "-"], stdin=json.dumps(fragile))
    succeed(environment, ["start", "approval", "--key", "live"])
    run_id = succeed(environment, ["start", "fragile", "--input", "[]", "--key", "ended"]).strip()
    assert towpath("result", run_id, environment=environment).returncode == 6
    exported = found / "altered.json"
    towpath("history", run_id, "--export", str(exported), environment=environment)
    exported.write_text(exported.read_text().replace("run-failed", "run-cancelled"))
    return found


def test_every_status_of_the_page_is_brought_about_here() -> None:
    documented = {
        int(found) for found in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    }
    assert documented == {*CASES, BUG, DENIED, INTERRUPTED}


def test_an_error_of_ours_ends_with_the_status_of_a_bug() -> None:
    fault = refusal(ApiError("internal", "a fault of the engine", status=500))
    away = refusal(ApiError("unavailable", "no Postgres", status=500))
    assert (fault.status, away.status) == (BUG, 3)
    broken = "from towpath_engine.cli import views; del views.COMMANDS"
    code = f"{broken}; from towpath_engine.cli.main import main; raise SystemExit(main(['list']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "this is a bug of Towpath" in done.stderr) == (BUG, True)


def test_a_command_that_nats_does_not_let_in_ends_with_the_status_of_the_page(
    tmp_path: Path,
) -> None:
    config = 'authorization { user: me, password: "p" }'
    server = JetStreamServer(tmp_path / "nats", jetstream=False, config=config).start()
    try:
        done = towpath("list", environment={"TOWPATH_NATS_URL": server.url})
    finally:
        server.kill()
    assert (done.returncode, "Traceback" in done.stderr) == (DENIED, False), done.stderr


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        pytest.param(status, case, id=f"{status} {' '.join(case)}")
        for status, cases in CASES.items()
        for case in cases
    ],
)
def test_a_command_ends_with_the_status_of_the_page(
    environment: Environment, folder: Path, status: int, arguments: list[str]
) -> None:
    done = towpath(*arguments, environment=environment, working_dir=folder)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
    # A replay shows what differs where a comparison does.
    assert bool(done.stdout if status == 8 else done.stderr) or status == 0


def test_an_interrupted_command_ends_with_the_status_of_the_page(
    environment: Environment, folder: Path
) -> None:
    watch = background(environment, ["watch", "approval/live"], folder)
    try:
        eventually_sync(lambda: "run-started" in watch.output())
        watch.popen.send_signal(signal.SIGINT)
        assert watch.wait() == INTERRUPTED
    finally:
        watch.close()
