"""Names and identities: their patterns, and one check for each that names the field.

`check_…` functions return the value unchanged or raise ProtocolError (`invalid_name`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, NewType

from msgspec import Meta

from towpath_protocol.errors import ErrorCode, ProtocolError

RunId = NewType("RunId", str)
"""A checked run id: lower-case UUIDv7 text."""

# `$` alone would let a trailing newline through in Python; with the lookahead the same text means
# the same in Python and in JSON Schema's dialect.
_END = r"$(?!\n)"
NAME_PATTERN: Final = rf"^[A-Za-z][A-Za-z0-9_-]{{0,63}}{_END}"
TASK_PATTERN: Final = rf"^[A-Za-z][A-Za-z0-9_.-]{{0,127}}{_END}"
STEP_PATTERN: Final = rf"^[a-z][a-z0-9_]{{0,62}}{_END}"
TOKEN_PATTERN: Final = rf"^[A-Za-z0-9_-]{{1,64}}{_END}"
PREFIX_PATTERN: Final = rf"^[a-z][a-z0-9-]{{0,31}}{_END}"
RUN_ID_PATTERN: Final = (
    rf"^[0-9a-f]{{8}}-[0-9a-f]{{4}}-7[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}{_END}"
)

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
"""Name of a workflow, queue or signal, as a field of a message."""
TaskName = Annotated[str, Meta(pattern=TASK_PATTERN)]
"""Name of a task, as a field of a message."""
RunIdText = Annotated[str, Meta(pattern=RUN_ID_PATTERN)]
"""Run id, as a field of a message."""

WorkerId = Annotated[str, Meta(max_length=256)]
"""Id of a worker, its own choice, as a field of a message."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number that grows, as a field of a message: it fits what any database calls bigint."""
VersionNumber = Annotated[int, Meta(ge=1, le=2**31 - 1)]
"""Number of a workflow version, as a field of a message."""

KEY_LENGTH_MAX: Final = 256

RULES: Final[Mapping[str, str]] = {
    NAME_PATTERN: "a letter, then at most 63 letters, digits, '_' or '-'",
    TASK_PATTERN: "a letter, then at most 127 letters, digits, '_', '.' or '-'",
    STEP_PATTERN: "a lower-case letter, then at most 62 lower-case letters, digits or '_'",
    TOKEN_PATTERN: "1 to 64 letters, digits, '_' or '-'",
    PREFIX_PATTERN: "a lower-case letter, then at most 31 lower-case letters, digits or '-'",
    RUN_ID_PATTERN: "a UUID of version 7 in lower case, as run.start returned it",
}
"""What each pattern demands, for a person."""

_NAME: Final = re.compile(NAME_PATTERN)
_TASK: Final = re.compile(TASK_PATTERN)
_STEP: Final = re.compile(STEP_PATTERN)
_TOKEN: Final = re.compile(TOKEN_PATTERN)
_PREFIX: Final = re.compile(PREFIX_PATTERN)
_RUN_ID: Final = re.compile(RUN_ID_PATTERN)
# C0 and C1 controls, DEL, and the two separators that most systems treat as line ends.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")

UUID_RANDOM_BYTES: Final = 10
"""How much chance `new_uuid7` needs."""


def _refusal(field: str, value: str, rule: str) -> ProtocolError:
    shown = ascii(value if len(value) <= 80 else value[:77] + "...")
    return ProtocolError(
        ErrorCode.INVALID_NAME, f"{shown} is not allowed", field=field, fix=f"use {rule}"
    )


def _check_name(value: str, field: str) -> str:
    if _NAME.match(value) is None:
        raise _refusal(field, value, RULES[NAME_PATTERN])
    return value


def check_workflow(value: str, field: str = "workflow") -> str:
    """A workflow name: a letter, then at most 63 letters, digits, `_` or `-`."""
    return _check_name(value, field)


def check_queue(value: str, field: str = "queue") -> str:
    """A queue name; the same pattern as a workflow's."""
    return _check_name(value, field)


def check_signal(value: str, field: str = "signal") -> str:
    """A signal name; the same pattern as a workflow's."""
    return _check_name(value, field)


def check_task(value: str, field: str = "task") -> str:
    """A task name: as a workflow's, dots too, at most 128 characters."""
    if _TASK.match(value) is None:
        raise _refusal(field, value, RULES[TASK_PATTERN])
    return value


def check_step(value: str, field: str = "step") -> str:
    """A step's own name (not its path): `[a-z][a-z0-9_]{0,62}`."""
    if _STEP.match(value) is None:
        raise _refusal(field, value, RULES[STEP_PATTERN])
    return value


def check_token(value: str, field: str = "token") -> str:
    """A fencing or spreading token: 1 to 64 letters, digits, `_` or `-`."""
    if _TOKEN.match(value) is None:
        raise _refusal(field, value, RULES[TOKEN_PATTERN])
    return value


def check_prefix(value: str, field: str = "prefix") -> str:
    """The subject prefix of an installation: `[a-z][a-z0-9-]{0,31}`."""
    if _PREFIX.match(value) is None:
        raise _refusal(field, value, RULES[PREFIX_PATTERN])
    return value


def check_run_id(value: str, field: str = "run_id") -> RunId:
    """A run id: a UUID of version 7 in lower case."""
    if _RUN_ID.match(value) is None:
        raise _refusal(field, value, RULES[RUN_ID_PATTERN])
    return RunId(value)


def check_key(value: str, field: str = "key") -> str:
    """A key: 1 to 256 code points, no control characters, no blanks at its ends."""
    if (
        not 1 <= len(value) <= KEY_LENGTH_MAX
        or value != value.strip()
        or _CONTROL.search(value) is not None
        or _SURROGATE.search(value) is not None
    ):
        rule = "1 to 256 characters without control characters and without blanks at the ends"
        raise _refusal(field, value, rule)
    return value


def new_uuid7(at_ms: int, random: bytes) -> str:
    """A UUIDv7 from Unix milliseconds (0 to 2^48 - 1) and 10 random bytes; lower-case text.

    Pure: the caller brings time and chance. Raises ValueError outside these ranges.
    """
    if not 0 <= at_ms < 1 << 48:
        raise ValueError(f"at_ms {at_ms} does not fit 48 bits")
    if len(random) != UUID_RANDOM_BYTES:
        raise ValueError(f"random has {len(random)} bytes instead of {UUID_RANDOM_BYTES}")
    chance = int.from_bytes(random, "big")
    high = 0x7000 | (chance >> 68)
    low = 0x8000_0000_0000_0000 | (chance & 0x3FFF_FFFF_FFFF_FFFF)
    text = f"{at_ms:012x}{high:04x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
