"""The closed list of error codes, the body of an error answer, and the one exception of this
package.

A code is used in two places: in the answer to a request, with the status in
`Nats-Service-Error-Code`, and as the reason of a dead letter. Codes are never renamed or reused;
a reader must expect codes that it does not know (a newer engine) and go by the status then.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Raw, Struct


class ErrorCode(StrEnum):
    """Every code there is. `ERRORS` has the status and the meaning of each."""

    # The message itself.
    UNDECODABLE = "undecodable"
    UNSAFE_JSON = "unsafe_json"
    MALFORMED = "malformed"
    INVALID_NAME = "invalid_name"
    BAD_SUBJECT = "bad_subject"
    BAD_HEADER = "bad_header"
    SUBJECT_MISMATCH = "subject_mismatch"
    UNSUPPORTED_VERSION = "unsupported_version"
    TOO_LARGE = "too_large"
    MISSING_SENDER = "missing_sender"
    # What it names is not there.
    UNKNOWN_VERB = "unknown_verb"
    WORKFLOW_NOT_FOUND = "workflow_not_found"
    VERSION_NOT_FOUND = "version_not_found"
    RUN_NOT_FOUND = "run_not_found"
    STEP_NOT_FOUND = "step_not_found"
    KEY_NOT_FOUND = "key_not_found"
    QUEUE_NOT_FOUND = "queue_not_found"
    DEAD_LETTER_NOT_FOUND = "dead_letter_not_found"
    UNKNOWN_RUN = "unknown_run"
    UNKNOWN_KEY = "unknown_key"
    # The state does not allow it.
    RUN_SETTLED = "run_settled"
    KEY_CONFLICT = "key_conflict"
    REQUEST_CONFLICT = "request_conflict"
    COMPENSATING = "compensating"
    RUN_NOT_SETTLED = "run_not_settled"
    NOT_RETRYABLE = "not_retryable"
    ALREADY_COMPENSATED = "already_compensated"
    STEP_NOT_REACHED = "step_not_reached"
    SIGNALS_FULL = "signals_full"
    QUEUES_FULL = "queues_full"
    PAUSES_FULL = "pauses_full"
    # Refused by a rule.
    DEFINITION_REFUSED = "definition_refused"
    SCHEMA_FAILED = "schema_failed"
    NOT_YET = "not_yet"
    # The engine.
    OVERLOADED = "overloaded"
    POISON = "poison"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


class ErrorFacts(Struct, frozen=True):
    """HTTP-like status and one-line meaning of a code."""

    status: int
    meaning: str


ERRORS: Final[Mapping[ErrorCode, ErrorFacts]] = {
    ErrorCode.UNDECODABLE: ErrorFacts(400, "The body is not JSON (or not MessagePack) at all."),
    ErrorCode.UNSAFE_JSON: ErrorFacts(
        400,
        "JSON that cannot be kept unchanged: NUL, lone surrogate, number beyond a double, NaN, "
        "duplicate key, nesting beyond the limit, or a MessagePack type that JSON has not.",
    ),
    ErrorCode.MALFORMED: ErrorFacts(
        400, "JSON, but not this message: a field is missing, of the wrong type or out of range."
    ),
    ErrorCode.INVALID_NAME: ErrorFacts(400, "A name, key, id or token breaks its pattern."),
    ErrorCode.BAD_SUBJECT: ErrorFacts(400, "The subject is not one of the protocol's."),
    ErrorCode.BAD_HEADER: ErrorFacts(400, "A header is missing or cannot be decoded."),
    ErrorCode.SUBJECT_MISMATCH: ErrorFacts(
        400, "The body repeats a fact of the subject or the step and disagrees."
    ),
    ErrorCode.UNSUPPORTED_VERSION: ErrorFacts(400, "`v` is a version this engine does not speak."),
    ErrorCode.TOO_LARGE: ErrorFacts(413, "A value, the headers or the message is over its limit."),
    ErrorCode.MISSING_SENDER: ErrorFacts(
        400, "The engine demands `Towpath-Sent-By` (`require_sender`) and the message has none."
    ),
    ErrorCode.UNKNOWN_VERB: ErrorFacts(404, "The API has no such verb."),
    ErrorCode.WORKFLOW_NOT_FOUND: ErrorFacts(404, "No workflow of this name was deployed."),
    ErrorCode.VERSION_NOT_FOUND: ErrorFacts(404, "The workflow has no such version."),
    ErrorCode.RUN_NOT_FOUND: ErrorFacts(404, "No run has this id."),
    ErrorCode.STEP_NOT_FOUND: ErrorFacts(404, "The run has no such step."),
    ErrorCode.KEY_NOT_FOUND: ErrorFacts(404, "No run of the workflow holds this key."),
    ErrorCode.QUEUE_NOT_FOUND: ErrorFacts(
        404, "No deployed workflow and no worker has named this queue."
    ),
    ErrorCode.DEAD_LETTER_NOT_FOUND: ErrorFacts(404, "No dead letter has this id."),
    ErrorCode.UNKNOWN_RUN: ErrorFacts(
        404, "A message for a run that does not exist, and did not appear while it was parked."
    ),
    ErrorCode.UNKNOWN_KEY: ErrorFacts(
        404, "A message for a key that no run holds, nor did while it was parked."
    ),
    ErrorCode.RUN_SETTLED: ErrorFacts(409, "The run has settled; the message names its status."),
    ErrorCode.KEY_CONFLICT: ErrorFacts(
        409, "A live run holds the key, and `on_conflict` says reject, or a retry needs it."
    ),
    ErrorCode.REQUEST_CONFLICT: ErrorFacts(
        409, "The request id was used before for something else."
    ),
    ErrorCode.COMPENSATING: ErrorFacts(409, "The run is undoing its steps and cannot be stopped."),
    ErrorCode.RUN_NOT_SETTLED: ErrorFacts(
        409, "The run is still live; only a settled one can be restarted, retried or purged."
    ),
    ErrorCode.NOT_RETRYABLE: ErrorFacts(
        409, "Retry or redrive does not go on there: the status, or the step that is named."
    ),
    ErrorCode.ALREADY_COMPENSATED: ErrorFacts(
        409, "A step of the run was undone; start it anew with restart."
    ),
    ErrorCode.STEP_NOT_REACHED: ErrorFacts(
        409, "The run never came to this step, so it cannot be redriven from there."
    ),
    ErrorCode.SIGNALS_FULL: ErrorFacts(
        409, "The run keeps as many unconsumed signals, or as many bytes of them, as it may."
    ),
    ErrorCode.QUEUES_FULL: ErrorFacts(409, "There are as many queues as there may be."),
    ErrorCode.PAUSES_FULL: ErrorFacts(409, "There are as many pauses as there may be."),
    ErrorCode.DEFINITION_REFUSED: ErrorFacts(
        422, "The definition has faults; `details.faults` lists all of them with their paths."
    ),
    ErrorCode.SCHEMA_FAILED: ErrorFacts(
        422, "The input or payload does not satisfy the workflow's JSON Schema."
    ),
    ErrorCode.NOT_YET: ErrorFacts(422, "Part of the protocol, but not built in this version."),
    ErrorCode.OVERLOADED: ErrorFacts(
        429, "Too much at once; nothing was done; repeat after `details.retry_after_ms`."
    ),
    ErrorCode.POISON: ErrorFacts(
        500, "Handling the message alone fails every time; it is kept for a person."
    ),
    ErrorCode.UNAVAILABLE: ErrorFacts(
        500, "Postgres cannot be reached; it is not known whether anything was done; repeat with "
        "the same `request_id` or `message_id`.",
    ),
    ErrorCode.INTERNAL: ErrorFacts(500, "A fault of the engine; its log has the details."),
}  # fmt: skip
assert ERRORS.keys() == set(ErrorCode), "every code has its facts"


class ErrorInfo(Struct, frozen=True, kw_only=True):
    """The inside of an error answer. `code` stays text, since a newer engine may have more."""

    code: str
    message: str
    details: Raw


class ErrorBody(Struct, frozen=True, kw_only=True):
    """`{"error": {"code", "message", "details"}}`, the body of every error answer."""

    error: ErrorInfo


_PATH_IN_TEXT_MAX: Final = 80


class ProtocolError(ValueError):
    """A message, name or value that breaks the protocol.

    `code` is from the closed list, `field` the path of the culprit (`error.details`, `items[3]`;
    empty: the whole message), `message` what is wrong with it, `fix` what to do instead. The text
    of the error has a long path in short, so that what cuts texts off leaves the cause.
    """

    def __init__(self, code: ErrorCode, message: str, *, field: str = "", fix: str = "") -> None:
        self.code = code
        self.message = message
        self.field = field
        self.fix = fix
        place = f"{shorten_path(field, _PATH_IN_TEXT_MAX)}: " if field else ""
        advice = f"; {fix}" if fix else ""
        super().__init__(f"{place}{message}{advice}")

    @property
    def status(self) -> int:
        """The HTTP-like status of the code."""
        return ERRORS[self.code].status

    def within(self, prefix: str) -> "ProtocolError":
        """The same error seen from outside: its field is below `prefix`."""
        return ProtocolError(
            self.code, self.message, field=join_path(prefix, self.field), fix=self.fix
        )


def join_path(outer: str, inner: str) -> str:
    """`error` and `details` → `error.details`; `items` and `[3]` → `items[3]`."""
    if not outer or not inner:
        return outer or inner
    return f"{outer}{inner}" if inner.startswith("[") else f"{outer}.{inner}"


def shorten_path(path: str, length_max: int) -> str:
    """The path, or its beginning and its end: where it leads says more than what is between."""
    if len(path) <= length_max:
        return path
    head = (length_max - 3) // 3
    return f"{path[:head]}...{path[head + 3 - length_max :]}"
