import contextlib
import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually_sync
from tests.support.jetstream import JetStreamServer
from tests.support.processes import (
    DevProcess,
    Identity,
    RealProcess,
    alive,
    marked_processes,
    towpath,
)

WORKFLOW = """
workflow: greeting
steps:
  - name: hear
    wait: {signal: hello, timeout: 1h}
  - name: answer
    pass: {said: "${ steps.hear.output.payload }"}
"""

ROOT = Path(__file__).resolve().parents[3]

StartDev = Callable[..., DevProcess]


@pytest.fixture
def start_dev() -> Iterator[StartDev]:
    started: list[DevProcess] = []

    def start(*arguments: str, environment: dict[str, str] | None = None) -> DevProcess:
        dev = DevProcess(*arguments, environment=environment)
        started.append(dev)
        return dev

    yield start
    for dev in started:
        dev.close()


def engine_answers(dev: DevProcess) -> bool:
    done = towpath("list", "--json", environment=client_environment(dev))
    return done.returncode == 0


def client_environment(dev: DevProcess) -> dict[str, str]:
    return {"TOWPATH_NATS_URL": dev.ready["nats_url"], "TOWPATH_PREFIX": dev.ready["prefix"]}


def run_towpath(dev: DevProcess, *arguments: str, stdin: str = "") -> str:
    done = towpath(*arguments, environment=client_environment(dev), stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def start_greeting(dev: DevProcess, key: str) -> str:
    run_towpath(dev, "deploy", "-", stdin=WORKFLOW)
    return run_towpath(dev, "start", "greeting", "--key", key)


def signal_and_read(dev: DevProcess, key: str, run_id: str) -> object:
    run_towpath(dev, "signal", f"greeting/{key}", "hello", "--payload", '"héllo"')
    return json.loads(run_towpath(dev, "result", run_id))


def test_the_ready_line_has_all_that_a_program_needs(start_dev: StartDev) -> None:
    dev = start_dev("--ephemeral", "--prefix", "shop-a")
    assert dev.ready["event"] == "ready"
    assert dev.ready["prefix"] == "shop-a"
    assert dev.ready["nats_url"].startswith("nats://127.0.0.1:")
    assert dev.ready["postgres_url"].startswith("postgresql://towpath:")
    assert {"nats", "postgres", "engine"} <= set(dev.ready["pids"])
    assert all(psutil.pid_exists(pid) for pid in dev.ready["pids"].values())
    with urllib.request.urlopen(dev.ready["http_url"] + "/readyz") as answer:
        assert answer.status == 200
    assert dev.output().count("\n") == 1
    run_id = start_greeting(dev, "k-1")
    assert signal_and_read(dev, "k-1", run_id) == {"said": "héllo"}


@pytest.mark.parametrize("name", ["nats", "postgres", "engine"])
def test_a_killed_child_comes_back_on_its_port_with_its_data(
    start_dev: StartDev, name: str
) -> None:
    dev = start_dev("--ephemeral")
    run_id = start_greeting(dev, "k-1")
    old = dev.kill_child(name)
    new = dev.wait_restarted(name, old)
    assert psutil.pid_exists(new)
    eventually_sync(lambda: engine_answers(dev))
    assert signal_and_read(dev, "k-1", run_id) == {"said": "héllo"}
    assert not zombies(dev), "the dead child, and Postgres' orphans, have been buried"


def test_a_wiped_jetstream_comes_back_empty_and_the_runs_go_on(start_dev: StartDev) -> None:
    dev = start_dev("--ephemeral")
    run_id = start_greeting(dev, "k-1")
    dev.wipe_jetstream()
    eventually_sync(lambda: engine_answers(dev))
    assert signal_and_read(dev, "k-1", run_id) == {"said": "héllo"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_no_process_and_no_ephemeral_data(
    start_dev: StartDev, number: signal.Signals
) -> None:
    dev = start_dev("--ephemeral")
    family = dev.family()
    assert len(family) > 5
    os.kill(dev.pid, number)
    assert dev.wait() == 0
    assert not alive(family)
    assert not marked_processes(dev.mark)
    assert not Path(dev.ready["data_dir"]).exists()


@pytest.mark.parametrize("program", ["initdb", "nats-server", "postgres"])
def test_a_signal_during_the_start_leaves_no_process(program: str) -> None:
    starting = RealProcess([sys.executable, "-m", "towpath_engine", "dev", "--ephemeral"])
    try:
        eventually_sync(lambda: program in names_below(starting.pid))
        family = starting.family()
        starting.terminate()
        assert starting.wait() == 0
        eventually_sync(lambda: not alive(family))
        assert not marked_processes(starting.mark)
    finally:
        starting.close()


def test_killed_itself_it_leaves_no_process(start_dev: StartDev) -> None:
    dev = start_dev("--ephemeral")
    family = dev.family()
    dev.kill()
    eventually_sync(lambda: not alive(family))
    assert not marked_processes(dev.mark)


def test_what_a_killed_one_left_on_the_disk_is_swept_by_the_next(start_dev: StartDev) -> None:
    killed = start_dev("--ephemeral")
    family = killed.family()
    killed.kill()
    eventually_sync(lambda: not alive(family))
    start_dev("--ephemeral")
    assert not Path(killed.ready["data_dir"]).exists()


_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "towpath_engine", *sys.argv[1:]])
child.wait()
"""


def test_it_stops_when_its_parent_is_killed() -> None:
    parent = RealProcess([sys.executable, "-c", _PARENT, "dev", "--ephemeral", "--json"])
    try:
        eventually_sync(lambda: "ready" in parent.output())
        family = parent.family()
        assert len(family) > 6
        parent.kill()
        eventually_sync(lambda: not alive(family))
        assert not marked_processes(parent.mark)
        last = json.loads(parent.errors().splitlines()[-1])
        assert last["event"] == "stopping"
        assert "the process that started it has ended" in last["message"]
    finally:
        parent.close()


def test_it_stops_when_its_parent_is_killed_while_it_still_loads() -> None:
    """The parent has gone before any of our code could have looked at it."""
    loading = _PARENT.replace('"-m"', '"-X", "importtime", "-m"')
    parent = RealProcess([sys.executable, "-c", loading, "dev", "--ephemeral"])
    try:
        eventually_sync(lambda: re.search(r"\| towpath_engine$", parent.errors(), re.MULTILINE))
        family = parent.family()
        parent.kill()
        eventually_sync(lambda: not alive(family))
        eventually_sync(lambda: not marked_processes(parent.mark))
    finally:
        parent.close()


_HASTY = """
import subprocess, sys
subprocess.Popen([sys.executable, "-m", "towpath_engine", "dev", "--ephemeral", "--json"])
"""


def test_it_stops_when_its_parent_had_gone_before_it_began() -> None:
    parent = RealProcess([sys.executable, "-c", _HASTY])
    try:
        parent.wait()
        eventually_sync(lambda: not marked_processes(parent.mark))
        assert "ready" not in parent.output()
    finally:
        parent.close()


_TEST = """
import sys
from tests.support.processes import Halted, RealProcess
process = RealProcess(["/bin/sleep", "600"])
halted = Halted(process.pid) if sys.argv[1:] else None
print(process.pid, flush=True)
process.wait(600)
"""


@pytest.mark.parametrize("halted", [[], ["halted"]])
def test_what_a_test_started_dies_with_the_test_process(halted: list[str]) -> None:
    test = RealProcess([sys.executable, "-c", _TEST, *halted], working_dir=ROOT)
    try:
        eventually_sync(lambda: test.output().endswith("\n"))
        family = test.family()
        assert int(test.output()) in {one.pid for one in family}
        test.kill()
        eventually_sync(lambda: not alive(family))
        assert not alive(family)
    finally:
        test.close()


def test_data_ports_and_runs_survive_until_the_next_start(
    start_dev: StartDev, open_dir: Path
) -> None:
    folder = str(open_dir / "data")
    first = start_dev("--data-dir", folder)
    run_id = start_greeting(first, "k-1")
    first.terminate()
    assert first.wait() == 0
    second = start_dev("--data-dir", folder)
    for url in ("nats_url", "postgres_url", "http_url"):
        assert second.ready[url] == first.ready[url]
    assert signal_and_read(second, "k-1", run_id) == {"said": "héllo"}


def test_two_at_once_do_not_meet(start_dev: StartDev) -> None:
    one, two = start_dev("--ephemeral"), start_dev("--ephemeral")
    for url in ("nats_url", "postgres_url", "http_url", "data_dir"):
        assert one.ready[url] != two.ready[url]
    run_id = start_greeting(one, "k-1")
    done = towpath("get", run_id, environment=client_environment(two))
    assert done.returncode == 4


def test_a_data_folder_belongs_to_one_at_a_time(start_dev: StartDev, open_dir: Path) -> None:
    start_dev("--data-dir", str(open_dir))
    done = towpath("dev", "--data-dir", str(open_dir))
    assert done.returncode == 5
    assert "another towpath dev runs on" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_ports_that_were_asked_for_are_used_or_refused(start_dev: StartDev) -> None:
    one = start_dev("--ephemeral")
    nats_port = one.ready["nats_url"].rpartition(":")[2]
    done = towpath("dev", "--ephemeral", "--nats-port", nats_port)
    assert done.returncode == 5
    assert f"port {nats_port} is in use" in done.stderr


def test_servers_of_others_are_used_and_left_alone(start_dev: StartDev) -> None:
    host = start_dev("--ephemeral")
    guest = start_dev(
        "--ephemeral",
        "--nats-url",
        host.ready["nats_url"],
        "--postgres-url",
        host.ready["postgres_url"],
        "--prefix",
        "guest",
    )
    assert set(guest.ready["pids"]) == {"dev", "engine"}
    run_id = start_greeting(guest, "k-1")
    assert towpath("get", run_id, environment=client_environment(host)).returncode == 4
    assert signal_and_read(guest, "k-1", run_id) == {"said": "héllo"}
    guest.terminate()
    assert guest.wait() == 0
    assert engine_answers(host)


def test_two_engines_share_the_work_of_one_installation(start_dev: StartDev) -> None:
    dev = start_dev("--ephemeral", "--engines", "2")
    assert {"engine", "engine-2"} <= set(dev.ready["pids"])
    assert len(set(dev.ready["http_urls"])) == 2
    old = dev.kill_child("engine")
    run_id = start_greeting(dev, "k-1")
    assert signal_and_read(dev, "k-1", run_id) == {"said": "héllo"}
    dev.wait_restarted("engine", old)


def test_a_bad_variable_is_said_once_and_nothing_is_started(open_dir: Path) -> None:
    folder = open_dir / "data"
    done = towpath("dev", "--data-dir", str(folder), environment={"TOWPATH_LOG_LEVEL": "loud"})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "TOWPATH_LOG_LEVEL" in done.stderr


def test_an_engine_that_cannot_start_ends_it_with_the_engines_words(open_dir: Path) -> None:
    unfit = JetStreamServer(open_dir, jetstream=False)
    unfit.start()
    try:
        done = towpath("dev", "--ephemeral", "--nats-url", unfit.url)
    finally:
        unfit.stop()
    assert done.returncode == 5
    assert "the engine ended before it was ready" in done.stderr
    assert "engine_refused" in done.stderr
    assert "Traceback" not in done.stderr


def zombies(dev: DevProcess) -> set[Identity]:
    root = psutil.Process(dev.pid)
    return {
        Identity(child.pid, child.create_time())
        for child in root.children(recursive=True)
        if child.status() == psutil.STATUS_ZOMBIE
    }


def names_below(pid: int) -> set[str]:
    found: set[str] = set()
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.add(process.name())
    return found
