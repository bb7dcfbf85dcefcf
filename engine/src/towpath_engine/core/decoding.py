"""Decoding the users' JSON for expressions. What is large is remembered beyond a decision: an
expression in a map may name the same list for each of its items, which would be decoded for each.

Nobody changes a decoded value.
"""

from functools import lru_cache
from typing import Final

from towpath_protocol import codec

# Decoded values take several times as much memory as their text, so only so many are remembered.
_SMALL_BYTES: Final = 4 * 1024
_MEDIUM_BYTES: Final = 64 * 1024
_LARGE_BYTES: Final = 1024 * 1024


def decoded(text: bytes) -> object:
    """The value of JSON text that was checked."""
    size = len(text)
    if size <= _SMALL_BYTES or size > _LARGE_BYTES:
        return codec.loads(text)
    return _medium(text) if size <= _MEDIUM_BYTES else _large(text)


@lru_cache(maxsize=64)
def _medium(text: bytes) -> object:
    return codec.loads(text)


@lru_cache(maxsize=4)
def _large(text: bytes) -> object:
    return codec.loads(text)
