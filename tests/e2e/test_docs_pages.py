"""The guides do what they say: every block is written, typed, and compared with what comes out."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.demo import node
from tests.support.pages import ROOT, Block, Reader, read_blocks, under
from tests.support.processes import DevProcess

ANY_LANGUAGE = "docs/writing-workers-any-language.md"
IN_JAVASCRIPT = "The same in JavaScript"


@pytest.fixture
def reader(dev: DevProcess, tmp_path: Path) -> Iterator[Reader]:
    where = {"TOWPATH_NATS_URL": dev.ready["nats_url"], "TOWPATH_PREFIX": dev.ready["prefix"]}
    reading = Reader(tmp_path, where)
    try:
        yield reading
    finally:
        reading.close()


@pytest.mark.parametrize("page", ["docs/concepts.md", "docs/writing-workflows.md"])
def test_a_guide_can_be_followed_to_the_letter(page: str, reader: Reader) -> None:
    blocks = read_blocks(page)
    assert blocks
    reader.follow(blocks)


def test_a_worker_needs_no_sdk(reader: Reader, tmp_path: Path) -> None:
    blocks = read_blocks(ANY_LANGUAGE)
    in_javascript = under(blocks, IN_JAVASCRIPT)
    reader.follow(block for block in blocks if block not in in_javascript)
    # As in the demo: where there is no Node.js, nobody follows this part.
    if node.find_node() is not None:
        asyncio.run(node.install())
        (tmp_path / "node_modules").symlink_to(node.FOLDER / "node_modules")
        reader.follow(in_javascript)


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").iterdir() if page.is_file()} - {"README.md"}
    assert sorted(page for page in pages if f"]({page})" not in index) == []


def test_a_page_that_shows_something_else_is_noticed(reader: Reader) -> None:
    wrong = Block("console", None, None, "$ towpath --version\ntowpath 9.9.9\n", "", 1)
    with pytest.raises(AssertionError, match="not:\ntowpath 9"):
        reader.follow([wrong])
