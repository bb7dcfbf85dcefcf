"""Requests of many items: the places that they take, and the turns that they leave to others."""

import asyncio

import pytest

from towpath_engine.services.api.errors import ApiFailureError
from towpath_engine.services.api.many import ITEMS_A_TURN, ItemRoom, in_turns


async def test_others_have_their_turn_while_many_items_are_read() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    try:
        items = list(range(10 * ITEMS_A_TURN))
        assert [pair async for pair in in_turns(items)] == list(enumerate(items))
        assert turns >= 9
    finally:
        other.cancel()


def test_places_are_counted_by_items_and_given_back() -> None:
    room = ItemRoom(10)
    with room.taken(7), room.taken(3):
        assert room.standing == 10
        with pytest.raises(ApiFailureError) as refused, room.taken(1):
            pass
        assert refused.value.code == "overloaded"
    assert room.standing == 0


def test_a_request_that_comes_alone_is_never_refused() -> None:
    room = ItemRoom(10)
    with room.taken(11):
        assert room.standing == 11
