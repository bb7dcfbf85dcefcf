"""Pieces of garbage: bytes, broken JSON, JSON of the wrong shape, and valid messages bent a little.

Drawn from a fixed seed, so that a failure can be seen again.
"""

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

Json = Any

AWKWARD: tuple[Json, ...] = (
    None, True, -1, 0, 2**63, 2**64, 10**400, 1.5, "", "x" * 70_000, "\x00", "é🎉", "a.b.*.>", [],
    {}, [[]], {"": {"": {}}}, "01890000-0000-7000-8000-000000000000", "2026-13-45T99:99:99Z",
)  # fmt: skip
RAW = (
    b"",
    b"\x00",
    b"{",
    b'{"a":1,"a":2}',
    b"\xff\xfe{}",
    b'{"output":NaN}',
    b'{"output":1e999}',
    b'"\\ud800"',
    b"[" * 3_000,
    b'{"a":' * 70 + b"1" + b"}" * 70,
    b"\xc1",
    b"\x81\xa1a\xc4\x01x",
)


def pieces(example: Mapping[str, Json], count: int, seed: int) -> Iterator[bytes]:
    """`count` bodies: raw ones, random bytes, and `example` with fields bent, dropped and added."""
    chance = random.Random(seed)
    for number in range(count):
        if number < len(RAW):
            yield RAW[number]
        elif number % 5 == 0:
            yield chance.randbytes(chance.randrange(200))
        else:
            yield json.dumps(_bent(example, chance), ensure_ascii=chance.random() < 0.5).encode(
                "utf-8", "surrogatepass"
            )


def _bent(example: Mapping[str, Json], chance: random.Random) -> Json:
    if chance.random() < 0.1:
        return chance.choice(AWKWARD)
    bent = dict(example)
    for _ in range(chance.randrange(1, 4)):
        name = chance.choice([*bent, "v", "type", "extra"])
        if chance.random() < 0.3:
            bent.pop(name, None)
        else:
            bent[name] = chance.choice(AWKWARD)
    return bent
