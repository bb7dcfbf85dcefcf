"""Chance and identity, derived from the seed that an event carries: the same every time."""

import base64
import hashlib
from datetime import datetime
from typing import Final

from towpath_protocol.ids import UUID_RANDOM_BYTES, new_uuid7

TOKEN_BYTES: Final = 16
"""128 bits of chance, so that a token is never guessed and never made twice."""
_RUN_ID_BYTES: Final = 16
_TOKEN_LENGTH: Final = 43
"""16 bytes of run id and 16 of chance, in base64 for URLs."""


def _digest(seed: str, *parts: str | int) -> bytes:
    text = "\x1f".join((seed, *(str(part) for part in parts)))
    return hashlib.blake2b(text.encode(), digest_size=TOKEN_BYTES).digest()


def new_token(seed: str, run_id: str, *parts: str | int) -> str:
    """A token of 43 characters `[A-Za-z0-9_-]`, unique for the run and `parts` (step, counters).

    It begins with the run's id, so that the engine can tell whose it is when a worker names the
    tokens it holds; to everybody else it is opaque.
    """
    data = bytes.fromhex(run_id.replace("-", "")) + _digest(seed, "token", run_id, *parts)
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def run_of_token(token: str) -> str | None:
    """The id of the run that a token belongs to; None for what is no token of ours."""
    if len(token) != _TOKEN_LENGTH:
        return None
    try:
        data = base64.b64decode(token + "=", altchars=b"-_", validate=True)
    except ValueError:
        return None
    digits = data[:_RUN_ID_BYTES].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_run_id(seed: str, at: datetime, *parts: str | int) -> str:
    """The id of a run that is asked for at the instant `at`, unique for `parts`."""
    return new_uuid7(int(at.timestamp() * 1_000), _digest(seed, "run", *parts)[:UUID_RANDOM_BYTES])


def new_share(seed: str, *parts: str | int) -> float:
    """A number in [0, 1), evenly spread over `parts`."""
    return int.from_bytes(_digest(seed, "share", *parts)[:6], "big") / (1 << 48)
