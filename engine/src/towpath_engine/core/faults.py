"""Faults of a definition: collected, never one at a time, each with its place in the document."""

from enum import StrEnum

from msgspec import Struct


class FaultCode(StrEnum):
    """What is wrong, for a program."""

    MALFORMED = "malformed"
    """The document is no JSON or YAML object that can be kept."""
    TOO_LARGE = "too_large"
    MISSING = "missing"
    UNKNOWN_FIELD = "unknown_field"
    WRONG_TYPE = "wrong_type"
    BAD_NAME = "bad_name"
    BAD_VALUE = "bad_value"
    """Of the right type, but out of range or not among the allowed ones."""
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    """Two fields that contradict each other."""
    UNKNOWN_TARGET = "unknown_target"
    UNREACHABLE = "unreachable"
    ENDLESS = "endless"
    """A list that can't end, or a cycle that would run without ever waiting."""
    BAD_EXPRESSION = "bad_expression"
    BAD_SCHEMA = "bad_schema"


class Fault(Struct, frozen=True, kw_only=True):
    """One fault. `path` is its place (`steps[2].retry.max_attempts`), empty for the document."""

    path: str
    message: str
    code: FaultCode

    def __str__(self) -> str:
        return f"{self.path or 'definition'}: {self.message}"


class DefinitionRefused(Exception):  # noqa: N818 - named for what happened, as its siblings
    """The definition has faults; `faults` are all of them."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(str(fault) for fault in faults))


class Faults:
    """Collects faults while a document is read."""

    def __init__(self) -> None:
        self._found: list[Fault] = []

    def add(self, path: str, message: str, code: FaultCode) -> None:
        """Note a fault; the same one is noted once."""
        fault = Fault(path=path, message=message, code=code)
        if fault not in self._found:
            self._found.append(fault)

    @property
    def found(self) -> tuple[Fault, ...]:
        """All faults so far."""
        return tuple(self._found)

    def refuse_if_any(self) -> None:
        """Raise DefinitionRefused when there is a fault."""
        if self._found:
            raise DefinitionRefused(self.found)
