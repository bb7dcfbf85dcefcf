"""docs/writing-workers.md: every program on it is served on a real server, or run."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worker.conftest import Serving
from tests.support.engine_side import EngineSide
from towpath_worker import ConnectionOptions, Worker
from towpath_worker.command import load_worker

PAGE = Path(__file__).resolve().parents[3] / "docs" / "writing-workers.md"
FILES = dict(
    re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
)

# Worker → (task, input, output). `None`: what it gives is not looked at.
DONE: dict[str, list[tuple[str, object, object]]] = {
    "shop:worker": [("shop.charge", {"card": "good", "total": 5}, {"receipt": "receipt-k"})],
    "orders:worker": [
        ("orders.count", {"lines": [{"sku": "a", "quantity": 3}]}, 3),
        ("orders.echo", {"any": [10**30]}, {"any": [10**30]}),
        ("orders.greet", None, "hello nobody"),
    ],
    "refunds:worker": [("refunds.pay", 7, "k")],
    "stock:worker": [("stock.left", "lamp", 3)],
    "images:worker": [("images.render", 4, 14)],
    "exports:worker": [("exports.run", 3, 3)],
    "both:mail": [("mail.send", "ann", "sent to ann")],
    "both:print_shop": [("print.label", "oslo", "OSLO")],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files, in the current folder; what was imported from it is forgotten."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.mark.parametrize("target", DONE)
async def test_the_pages_workers_do_what_it_says(
    target: str,
    folder: Path,
    engine: EngineSide,
    jetstream_url: str,
    serving: Serving,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOWPATH_NATS_URL", jetstream_url)
    monkeypatch.setenv("TOWPATH_PREFIX", engine.prefix)
    worker = load_worker(target)
    await engine.create_consumers(worker.queue)
    assert {task for task, _, _ in DONE[target]} == set(worker.registry.names)
    async with serving(worker):
        for task, value, expected in DONE[target]:
            token = await engine.dispatch(task, value, queue=worker.queue, idempotency_key="k")
            report = await engine.end_of(token)
            assert report.body.get("output") == expected, report.body


async def test_an_export_goes_on_where_the_attempt_before_it_was(
    folder: Path, engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    await engine.create_consumers("exports")
    options = ConnectionOptions(nats_url=jetstream_url, prefix=engine.prefix)
    worker = Worker("exports", connection=options)
    for task in load_worker("exports:worker").registry:
        worker.task(task.name)(task.function)
    async with serving(worker):
        token = await engine.dispatch(
            "exports.run", 5, queue="exports", last_progress={"number": 2}
        )
        assert (await engine.end_of(token)).body["output"] == 2


def test_the_pages_test_passes(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 passed" in result.stdout


def test_every_block_of_the_page_is_a_file_or_a_shell_command() -> None:
    kinds = re.findall(r"^```(\S.*)$", PAGE.read_text(), re.MULTILINE)
    assert {kind.partition(" file=")[0] for kind in kinds} <= {"python", "sh"}
    assert sum(" file=" in kind for kind in kinds) == sum(kind != "sh" for kind in kinds)
    assert {name.removesuffix(".py") for name in FILES} == {
        *(target.partition(":")[0] for target in DONE),
        "test_shop",
    }


def test_the_page_names_only_what_the_sdk_has() -> None:
    for text in FILES.values():
        ast.parse(text)
    page = PAGE.read_text()
    import towpath_worker

    for name in re.findall(r"`((?:[A-Z][a-z]+)+(?:Error|Options|Context|Metrics)?)[`(]", page):
        known = {"ProcessCrashed", "InvalidInput", "InvalidOutput", "TooLarge", "CancelledError",
                 "Pool", "Annotated", "CardRefused"}  # fmt: skip
        assert name in known or hasattr(towpath_worker, name), name
