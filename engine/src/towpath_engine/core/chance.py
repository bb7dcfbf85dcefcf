"""Chance and identity, derived from the seed that an event carries: the same every time."""

import base64
import hashlib
from typing import Final

TOKEN_BYTES: Final = 16
"""128 bits: 26 characters of base32, so that a token is never guessed and never made twice."""


def _digest(seed: str, *parts: str | int) -> bytes:
    text = "\x1f".join((seed, *(str(part) for part in parts)))
    return hashlib.blake2b(text.encode(), digest_size=TOKEN_BYTES).digest()


def new_token(seed: str, *parts: str | int) -> str:
    """A token of 26 characters `[a-z2-7]`, unique for `parts` (run, step, counters)."""
    return base64.b32encode(_digest(seed, "token", *parts)).decode().rstrip("=").lower()


def new_share(seed: str, *parts: str | int) -> float:
    """A number in [0, 1), evenly spread over `parts`."""
    return int.from_bytes(_digest(seed, "share", *parts)[:6], "big") / (1 << 48)
