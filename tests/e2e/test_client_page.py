"""docs/client.md does what it says: its blocks are written to files and run."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import DevProcess, RealProcess, towpath

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
FILES = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```\w", re.MULTILINE)

WORKFLOWS = ("parcel.yaml", "weighing.yaml")
EXPECTED = {
    "start.py": r"200\n\{'cents': 20\}\n",
    "blocking.py": r"\{'cents': 125\}\n([0-9a-f-]{36} \S+Z\n)+",
    "follow.py": r"1 run-started None\n\d+ step-completed approval\n\d+ step-completed price\n"
    r"\d+ run-completed None\n",
    "logs.py": r"info weigh 1 weighing p-1\n1 line\n",
    "many.py": r"\['StartedRun', 'StartedRun', 'StartedRun', 'InvalidRequestError'\]\n",
    "errors.py": r"the run is failed\n",
    "operate.py": r"run \S+ is failed: ExpressionError: .*\nwould do again: \('price',\)\n"
    r".*approv.*\ncancelled\n",
}


@pytest.fixture(scope="module")
def folder(dev: DevProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("client")
    for name, content in FILES.findall(PAGE.read_text(encoding="utf-8")):
        (found / name).write_text(content, encoding="utf-8")
    for workflow in WORKFLOWS:
        deployed = towpath("deploy", workflow, environment=where(dev), working_dir=found)
        assert deployed.returncode == 0, deployed.stderr
    return found


@pytest.fixture(scope="module")
def worker(dev: DevProcess, folder: Path) -> Iterator[RealProcess]:
    """The worker of the page's task."""
    command = [sys.executable, "-m", "towpath_worker", "scale:worker"]
    process = RealProcess(command, environment=where(dev), working_dir=folder)
    yield process
    process.close()


def where(dev: DevProcess) -> dict[str, str]:
    return {"TOWPATH_NATS_URL": dev.ready["nats_url"], "TOWPATH_PREFIX": dev.ready["prefix"]}


def test_every_block_of_the_page_is_run() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = [name for name, _ in FILES.findall(text)]
    assert set(names) == {*EXPECTED, *WORKFLOWS, "scale.py"}
    assert len(BLOCK.findall(text)) == len(names)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_of_the_page_prints_what_it_should(
    dev: DevProcess, folder: Path, worker: RealProcess, name: str
) -> None:
    program = RealProcess([sys.executable, name], environment=where(dev), working_dir=folder)
    try:
        assert program.wait() == 0, program.errors()
        assert re.fullmatch(EXPECTED[name], program.output()), program.output()
        assert worker.running()
    finally:
        program.close()
