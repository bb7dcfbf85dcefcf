"""The contract of a store, for both of them: logs, dead letters, stream epochs, the clock."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.store_builders import (
    NOW,
    a_change,
    a_letter,
    a_run,
    an_id,
    save,
    started,
)
from tests.support.stores import a_store
from towpath_engine.store.interface import BatchWrite, Store
from towpath_engine.store.records import LogLine, StreamEpoch
from towpath_engine.store.transaction import StoreCaps


def a_line(attempt: int, size: int, **overrides: Any) -> LogLine:
    values: dict[str, Any] = {
        "run_id": an_id(1), "path": "charge", "attempt": attempt, "token": f"t{attempt}",
        "at": NOW, "lines": b"[" + b"1" * (size - 2) + b"]",
    }  # fmt: skip
    return LogLine(**{**values, **overrides})


async def test_logs_come_back_in_order_of_arrival_by_run_or_step(store: Store) -> None:
    lines = [a_line(1, 10), a_line(1, 11, path="ship"), a_line(2, 12)]
    await started(store, a_run(), logs=lines)
    found = await store.get_logs(an_id(1), None, 0, 2)
    assert [line for _, line in found] == lines[:2]
    rest = await store.get_logs(an_id(1), None, found[-1][0], 10)
    assert [line for _, line in rest] == lines[2:]
    assert [line for _, line in await store.get_logs(an_id(1), "charge", 0, 10)] == [
        lines[0], lines[2],
    ]  # fmt: skip


async def test_the_newest_log_lines_of_an_attempt_stay_and_the_cut_is_marked(
    kind: str, postgres_url: str
) -> None:
    async with a_store(kind, postgres_url, caps=StoreCaps(log_bytes_max=100)) as store:
        run = await started(store, a_run(), logs=[a_line(1, 60), a_line(2, 60)])
        change = a_change(run, logs=[a_line(1, 50, path="ship"), a_line(1, 30), a_line(1, 70)])
        await save(store, change)
        await save(store, a_change(change.run, logs=[a_line(2, 500)]))
        found = [line for _, line in await store.get_logs(run.id, None, 0, 10)]
    assert found == [
        a_line(1, 50, path="ship"),
        a_line(1, 30, cut=True),
        a_line(1, 70),
        a_line(2, 500, cut=True),
    ]


async def test_dead_letters_come_newest_first_in_pages(store: Store) -> None:
    letters = [a_letter(n, run_id=an_id(9), step="a", headers={"H": "é"}) for n in (1, 3, 2)]
    await save(store, dead_letters=[*letters, letters[0]])
    page = await store.letters.page(None, 2, body_bytes_max=8)
    assert [row.letter for row in page] == [letters[1], letters[2]]
    rest = await store.letters.page(page[-1].letter.id, 2, body_bytes_max=8)
    assert [row.letter for row in rest] == [letters[0]]


async def test_a_dead_letter_may_hold_what_text_can_not(store: Store) -> None:
    odd = a_letter(
        1, body=b"\x00\xff", message="nul \x00", subject="s\ud800", headers={"a\x00": "\udfff"},
        run_id="not an id \x00", step="\x00",
    )  # fmt: skip
    await save(store, dead_letters=[odd])
    kept = (await store.letters.get([an_id(1)]))[an_id(1)]
    assert kept.body == b"\x00\xff"
    assert (kept.message, kept.subject, kept.headers) == ("nul �", "s?", {"a�": "?"})
    assert (kept.run_id, kept.step) == ("not an id �", "�")


@pytest.mark.parametrize(
    "caps",
    [
        StoreCaps(dead_letter_rows_max=3),
        StoreCaps(dead_letter_bytes_max=3 * (8 + 2) + 5),
    ],
)
async def test_dead_letters_beyond_the_cap_are_refused_and_counted(
    kind: str, postgres_url: str, caps: StoreCaps
) -> None:
    async with a_store(kind, postgres_url, caps=caps) as store:
        await save(store, dead_letters=[a_letter(1), a_letter(2)])
        async with store.transaction() as tx:
            await tx.save(BatchWrite(dead_letters=[a_letter(3), a_letter(4)]))
            await tx.save(BatchWrite(dead_letters=[a_letter(5)]))
            assert tx.refused_letter_count == 2
        kept = await store.letters.page(None, 10, body_bytes_max=0)
    assert [row.letter.id for row in kept] == [an_id(3), an_id(2), an_id(1)]


async def test_the_epoch_of_a_stream_is_remembered(store: Store) -> None:
    epoch = StreamEpoch(stream="TOWPATH_IN", created="2026-03-01T00:00:00Z", last_seq=2**53 + 1)
    assert await store.get_epoch("TOWPATH_IN") is None
    await store.put_epoch(replace(epoch, last_seq=1))
    await store.put_epoch(epoch)
    assert await store.get_epoch("TOWPATH_IN") == epoch


async def test_the_clock_is_aware_and_does_not_go_back(store: Store) -> None:
    first = await store.now()
    assert first.tzinfo is not None
    assert await store.now() >= first
