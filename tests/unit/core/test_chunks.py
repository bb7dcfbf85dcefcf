"""Ordered rows in chunks: as a sorted list would have them, and no chunk grows too large."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from towpath_engine.core.chunks import CHUNK_MAX, Chunks, Row, with_row, without_row

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


def a_row(number: int) -> Row:
    return BEGIN + timedelta(seconds=number // 3), f"lines[{number % 7}]/{number}"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=1_200))
def test_rows_come_and_go_and_stay_in_order(changes: list[tuple[bool, int]]) -> None:
    chunks: Chunks = ()
    rows: set[Row] = set()
    for comes, number in changes:
        row = a_row(number)
        chunks = (with_row if comes else without_row)(chunks, row)
        (rows.add if comes else rows.discard)(row)
    assert [row for chunk in chunks for row in chunk] == sorted(rows)
    assert all(0 < len(chunk) <= CHUNK_MAX for chunk in chunks)


def test_ten_thousand_rows_are_in_chunks_of_the_size_of_their_number() -> None:
    chunks: Chunks = ()
    for number in range(10_000):
        chunks = with_row(chunks, a_row(number))
    assert 10_000 / CHUNK_MAX <= len(chunks) <= 2 * 10_000 / CHUNK_MAX + 1
    assert max(map(len, chunks)) <= CHUNK_MAX
