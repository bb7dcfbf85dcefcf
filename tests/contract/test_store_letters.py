"""The contract of dead letters that are kept: read in bounded pages, deleted with their room."""

import asyncio

from tests.support.store_builders import (
    a_change,
    a_letter,
    a_run,
    a_step,
    an_id,
    save,
    started,
)
from tests.support.stores import a_store
from towpath_engine.store.interface import Store
from towpath_engine.store.letters import CutLetter
from towpath_engine.store.transaction import StoreCaps


async def test_a_page_has_the_beginnings_of_bodies_and_their_lengths(store: Store) -> None:
    await save(store, dead_letters=[a_letter(1, body=b"abcdef"), a_letter(2, body=b"")])
    page = await store.letters.page(None, 10, body_bytes_max=4)
    assert page == [
        CutLetter(letter=a_letter(2, body=b""), body_bytes=0),
        CutLetter(letter=a_letter(1, body=b"abcd"), body_bytes=6),
    ]
    assert await store.letters.get([an_id(1), an_id(9), "no id"]) == {
        an_id(1): a_letter(1, body=b"abcdef")
    }


async def test_deleting_counts_what_was_there_and_gives_the_room_back(
    kind: str, postgres_url: str
) -> None:
    caps = StoreCaps(dead_letter_rows_max=2, dead_letter_bytes_max=2 * (8 + 2))
    async with a_store(kind, postgres_url, caps=caps) as store:
        for _ in range(3):
            await save(store, dead_letters=[a_letter(1), a_letter(2), a_letter(3)])
            both = [an_id(1), an_id(2)]
            assert set(await store.letters.get([*both, an_id(3)])) == set(both)
            assert await store.letters.delete([an_id(2), an_id(1), an_id(1), "no id"]) == 2
            assert await store.letters.delete(both) == 0
            assert await store.letters.page(None, 9, body_bytes_max=1) == []


async def test_letters_of_a_run_are_kept_with_it_and_not_when_it_did_not_match(
    store: Store,
) -> None:
    before = await started(store, a_run())
    assert await save(store, a_change(before, letters=[a_letter(1)])) == {before.id}
    assert await save(store, a_change(before, letters=[a_letter(2)])) == set()
    assert set(await store.letters.get([an_id(1), an_id(2)])) == {an_id(1)}


async def test_two_who_delete_the_same_letters_count_each_once(
    kind: str, postgres_url: str
) -> None:
    async with a_store(kind, postgres_url, caps=StoreCaps(dead_letter_rows_max=50)) as store:
        letters = [a_letter(number) for number in range(50)]
        await save(store, dead_letters=letters)
        ids = [letter.id for letter in letters]
        counts = await asyncio.gather(
            *(store.letters.delete(ids if number % 2 else ids[::-1]) for number in range(6))
        )
        assert sum(counts) == 50
        await save(store, dead_letters=letters)
        assert len(await store.letters.get(ids)) == 50


async def test_the_step_of_a_live_token_is_found(store: Store) -> None:
    run = await started(store, a_run(1), a_step("charge", token="t1"), a_step("ship", token="t2"))
    asked = [(run.id, "t2"), (run.id, "t9"), (an_id(9), "t1"), ("no id", "t1")]
    assert await store.letters.steps_of(asked) == {(run.id, "t2"): "ship"}
