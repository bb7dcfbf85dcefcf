"""Requests to `P.api.<group>.<verb>` (PROTOCOL.md, "API"); those of operators: `operations`.

User values (`input`, `payload`) are `Raw` JSON text, an absent one is null. Instants are RFC 3339
texts. A request checks itself when it is built or decoded: a contradiction raises ProtocolError
naming the field.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.failures import DurationMs
from towpath_protocol.ids import Count, Name, RunIdText, VersionNumber, check_key
from towpath_protocol.priorities import Priority
from towpath_protocol.raw import OptionalRaw, forget_null, null
from towpath_protocol.shapes import WAIT_MS_MAX, MessageId, PageLimit, StepPath, Tag, Tags, Text
from towpath_protocol.times import parse_instant


def _refuse(message: str, name: str, fix: str = "") -> ProtocolError:
    return ProtocolError(ErrorCode.MALFORMED, message, field=name, fix=fix)


def _check_target(run_id: str | None, workflow: str | None, key: str | None) -> None:
    if (run_id is None) == (workflow is None) or (workflow is None) != (key is None):
        raise _refuse("says not which run", "run_id", "give run_id, or workflow and key")
    if key is not None:
        check_key(key)


class OnConflict(StrEnum):
    """What a start does when a live run holds its key."""

    EXISTING = "existing"
    """Answer with that run, `deduplicated: true` (the default)."""
    REJECT = "reject"
    """409 `key_conflict`."""
    REPLACE = "replace"
    """Cancel that run, without compensation, in the same transaction."""


class DeployWorkflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """workflow.deploy. `definition` is the document, a JSON object."""

    definition: Raw
    dry_run: bool = False


class ListWorkflows(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """workflow.list: the newest version of every workflow."""


class GetWorkflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """workflow.get; `version` None: the newest."""

    workflow: Name
    version: VersionNumber | None = None


class StartRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.start. `delay_ms` or `at` delays the beginning; `context` is a JSON object."""

    workflow: Name
    input: Raw = field(default_factory=null)
    key: str | None = None
    version: VersionNumber | None = None
    delay_ms: DurationMs | None = None
    at: str | None = None
    priority: Priority | None = None
    tags: Tags | None = None
    context: OptionalRaw = None
    on_conflict: OnConflict = OnConflict.EXISTING
    request_id: MessageId | None = None
    triggered_by: Text | None = None

    def __post_init__(self) -> None:
        _check_start(self.key, self.delay_ms, self.at)
        forget_null(self, "context")
        _check_object(self.context, "context")


def _check_object(value: OptionalRaw, name: str) -> None:
    if value is not None and not bytes(value).lstrip().startswith(b"{"):
        raise _refuse("is no JSON object", name, 'send an object, as {"tenant": "a"}')


def _check_start(key: str | None, delay_ms: int | None, at: str | None) -> None:
    if key is not None:
        check_key(key)
    if delay_ms is not None and at is not None:
        raise _refuse("contradicts delay_ms", "at", "give one of the two")
    if at is not None:
        parse_instant(at)


class StartMany(Struct, frozen=True, kw_only=True):
    """run.start-many, as a client writes it: up to 10,000 items in one message."""

    items: tuple[StartRun, ...]


class StartManyItems(Struct, frozen=True, kw_only=True):
    """run.start-many, as the engine reads it: a bad item spoils only itself.

    Decode each item as StartRun; its error's field is then below `items[n]`.
    """

    items: tuple[Raw, ...]


class SignalRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.signal, to `run_id` or to the live run of (`workflow`, `key`)."""

    run_id: RunIdText | None = None
    workflow: Name | None = None
    key: str | None = None
    signal: Name
    payload: Raw = field(default_factory=null)
    message_id: MessageId | None = None
    sent_by: Text | None = None

    def __post_init__(self) -> None:
        _check_target(self.run_id, self.workflow, self.key)


class SignalWithStart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.signal-with-start: start unless the key has a live run, and signal it, atomically."""

    workflow: Name
    input: Raw = field(default_factory=null)
    key: str
    version: VersionNumber | None = None
    delay_ms: DurationMs | None = None
    at: str | None = None
    priority: Priority | None = None
    tags: Tags | None = None
    context: OptionalRaw = None
    request_id: MessageId | None = None
    triggered_by: Text | None = None
    signal: Name
    payload: Raw = field(default_factory=null)
    message_id: MessageId | None = None
    sent_by: Text | None = None

    def __post_init__(self) -> None:
        _check_start(self.key, self.delay_ms, self.at)
        forget_null(self, "context")
        _check_object(self.context, "context")


class CancelRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.cancel, of `run_id` or of the live run of (`workflow`, `key`).

    `compensate`: undo the completed steps that can be undone. None: as the workflow's `on_failure`
    says.
    """

    run_id: RunIdText | None = None
    workflow: Name | None = None
    key: str | None = None
    compensate: bool | None = None
    by: Text | None = None
    reason: Text | None = None

    def __post_init__(self) -> None:
        _check_target(self.run_id, self.workflow, self.key)


class GetRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.get. `steps` False leaves them out; `steps_cursor` of the last page gets the next.

    `inner` False: only the steps of the workflow's own list. `under`: only those below this step,
    which is a `parallel` or `map` step, a branch or an item.
    """

    run_id: RunIdText
    steps: bool = True
    inner: bool = True
    under: StepPath | None = None
    steps_cursor: Annotated[str, Meta(max_length=1_024)] | None = None


class GetOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.output: the output of the run, or of a step, in pieces. `offset` counts bytes."""

    run_id: RunIdText
    step: StepPath | None = None
    offset: Count = 0


class GetResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.result: wait up to `wait_ms` for the run to settle."""

    run_id: RunIdText
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0


class ListRuns(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.list, newest first. `from` and `to` bound `created_at`, the latter exclusive."""

    workflow: Name | None = None
    status: Annotated[str, Meta(max_length=64)] | None = None
    key: str | None = None
    tag: Tag | None = None
    from_: str | None = field(default=None, name="from")
    to: str | None = None
    cursor: Annotated[str, Meta(max_length=1_024)] | None = None
    limit: PageLimit = 100

    def __post_init__(self) -> None:
        if self.from_ is not None:
            parse_instant(self.from_, "from")
        if self.to is not None:
            parse_instant(self.to, "to")
        if self.key is not None:
            check_key(self.key)


class GetHistory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.history: transitions with `seq` above `after_seq`, in order.

    `payloads`: with the values that a replay of the history needs (outputs, errors, signals).
    """

    run_id: RunIdText
    after_seq: Count = 0
    payloads: bool = False
    limit: PageLimit = 200


class GetLogs(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.logs: log lines of attempts in order of arrival, of one step or of all."""

    run_id: RunIdText
    step: StepPath | None = None
    after: Count = 0
    limit: PageLimit = 100


class ListDeadLetters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """dead-letter.list, newest first."""

    cursor: Annotated[str, Meta(max_length=1_024)] | None = None
    limit: PageLimit = 100
