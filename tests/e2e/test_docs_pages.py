"""The guides do what they say: every block is written, typed, and compared with what comes out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import Reader, read_blocks
from tests.support.processes import DevProcess


@pytest.fixture
def reader(dev: DevProcess, tmp_path: Path) -> Iterator[Reader]:
    where = {"TOWPATH_NATS_URL": dev.ready["nats_url"], "TOWPATH_PREFIX": dev.ready["prefix"]}
    reading = Reader(tmp_path, where)
    try:
        yield reading
    finally:
        reading.close()


@pytest.mark.parametrize("page", ["writing-workflows.md"])
def test_a_guide_can_be_followed_to_the_letter(page: str, reader: Reader) -> None:
    blocks = read_blocks(f"docs/{page}")
    assert blocks
    reader.follow(blocks)
