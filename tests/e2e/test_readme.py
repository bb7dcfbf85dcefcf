"""The README's programs do what it says: its code blocks are written to files and run."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import Reader, read_blocks
from tests.support.processes import DevProcess, RealProcess, towpath

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
FILES = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.findall(README.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


@pytest.fixture
def where(dev: DevProcess) -> dict[str, str]:
    return {"TOWPATH_NATS_URL": dev.ready["nats_url"], "TOWPATH_PREFIX": dev.ready["prefix"]}


@pytest.fixture
def worker(folder: Path, where: dict[str, str]) -> Iterator[RealProcess]:
    command = [sys.executable, "-m", "towpath_engine", "worker", "shop:worker"]
    process = RealProcess(command, environment=where, working_dir=folder)
    try:
        yield process
    finally:
        process.close()


def test_the_quickstart_runs_as_it_is_written(where: dict[str, str], tmp_path: Path) -> None:
    reader = Reader(tmp_path, where)
    # `make` and `towpath dev` are commands of other tests.
    blocks = [block for block in read_blocks("README.md") if block.language not in {"sh", "text"}]
    try:
        reader.follow(blocks)
        assert reader.terminal("2").running()
    finally:
        reader.close()


def test_the_client_program_prints_the_output(
    folder: Path, where: dict[str, str], worker: RealProcess
) -> None:
    assert towpath("deploy", "order.yaml", environment=where, working_dir=folder).returncode == 0
    program = RealProcess([sys.executable, "client.py"], environment=where, working_dir=folder)
    try:
        assert program.wait() == 0, program.errors()
        assert program.output().startswith("parcel for")
    finally:
        program.close()


def test_the_example_of_the_sdk_ships_its_order(where: dict[str, str], tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "workers" / "examples" / "order.py")]
    example = RealProcess(program, environment=where, working_dir=tmp_path)
    try:
        assert example.wait() == 0, example.errors()
        assert example.output() == "TRACK-o-1\n"
    finally:
        example.close()


def test_the_programs_are_as_short_as_promised() -> None:
    files = dict(FILES.findall(README.read_text(encoding="utf-8")))
    assert set(files) == {"shop.py", "order.yaml", "client.py"}
    lines = {name: len([one for one in text.splitlines() if one]) for name, text in files.items()}
    assert max(lines.values()) <= 20, lines


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*.md")]
    pages += ROOT.glob("examples/**/*.md")
    own = [page for page in pages if "node_modules" not in page.parts]
    lost = [
        f"{page.name}: {target}"
        for page in own
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert lost == []
