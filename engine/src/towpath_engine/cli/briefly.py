"""What the tables for people show of values that `--json` prints whole: one short text a cell."""

import json
from collections.abc import Mapping

import msgspec
from msgspec import Struct


class _Error(Struct, frozen=True):
    type: str
    message: str


class _Cause(Struct, frozen=True):
    type: str
    kind: str | None = None
    by: str | None = None
    worker_id: str | None = None
    reason: str | None = None


def brief_error(error: object) -> str | None:
    """`Type: message`, without stack and details; None where there was no error."""
    return None if error is None else _error_text(msgspec.convert(error, _Error))


def brief_cause(cause: object) -> str:
    """What made a transition happen, who and why: `report step-failed by host-12-ab`,
    `retry by ann: the card works again`."""
    told = msgspec.convert(cause, _Cause)
    by = told.by or told.worker_id
    words = (told.type, told.kind, None if by is None else f"by {by}")
    text = " ".join(word for word in words if word is not None)
    return text if told.reason is None else f"{text}: {told.reason}"


def brief_facts(data: object) -> str | None:
    """The facts of a transition that are not null, as `name=value`; None where there are none."""
    if data is None:
        return None
    facts = msgspec.convert(data, Mapping[str, object])
    told = [f"{name}={_fact(value)}" for name, value in facts.items() if value is not None]
    return " ".join(told)


def _fact(value: object) -> str:
    try:
        return f"({_error_text(msgspec.convert(value, _Error))})"
    except msgspec.ValidationError:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _error_text(error: _Error) -> str:
    return " ".join(f"{error.type}: {error.message}".split())
