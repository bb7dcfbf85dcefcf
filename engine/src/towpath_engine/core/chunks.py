"""Ordered rows of which one more or less costs the square root of their number: a tuple of tuples.

The rows of a run that waits 10,000 times are derived anew by each event. A chunk has at most
CHUNK_MAX rows and at least one; all of a chunk come before all of the next.
"""

from bisect import bisect_left, bisect_right
from datetime import datetime
from typing import Final

Row = tuple[datetime, str]
Chunk = tuple[Row, ...]
Chunks = tuple[Chunk, ...]

CHUNK_MAX: Final = 128


def with_row(chunks: Chunks, row: Row) -> Chunks:
    """The rows with this one, which may be there already."""
    if not chunks:
        return ((row,),)
    place = _place(chunks, row)
    chunk = chunks[place]
    at = bisect_left(chunk, row)
    if at < len(chunk) and chunk[at] == row:
        return chunks
    grown = (*chunk[:at], row, *chunk[at:])
    half = len(grown) // 2
    instead = (grown,) if len(grown) <= CHUNK_MAX else (grown[:half], grown[half:])
    return (*chunks[:place], *instead, *chunks[place + 1 :])


def without_row(chunks: Chunks, row: Row) -> Chunks:
    """The rows without this one, which may be absent."""
    if not chunks:
        return chunks
    place = _place(chunks, row)
    chunk = chunks[place]
    at = bisect_left(chunk, row)
    if at == len(chunk) or chunk[at] != row:
        return chunks
    left = (*chunk[:at], *chunk[at + 1 :])
    return (*chunks[:place], *((left,) if left else ()), *chunks[place + 1 :])


def _place(chunks: Chunks, row: Row) -> int:
    """The chunk in which the row is, or would be."""
    return max(0, bisect_right(chunks, row, key=_first) - 1)


def _first(chunk: Chunk) -> Row:
    return chunk[0]
