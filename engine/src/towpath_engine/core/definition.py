"""A deployed workflow version, parsed: what `decide` reads. Built by `core.parse` alone.

Durations are milliseconds. Expressions are compiled; `None` means "not given" everywhere.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from towpath_engine.core.expressions.interface import Condition, Template
from towpath_engine.core.states import StepKind


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often a task is tried, after which waits. Defaults are those of a task without `retry`.

    A failure is retried when attempts are left, its `retryable` is true, its type is in `only`
    (if given) and not in `never`, and `when` (if given) says true.
    """

    max_attempts: int = 1
    initial_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 60_000
    jitter: float = 0.2
    """± this share of the wait, before the cap at `max_ms`."""
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()
    when: Condition | None = None


class Timeouts(Struct, frozen=True, kw_only=True):
    """The four timeouts of a task step."""

    attempt_ms: int = 300_000
    dispatch_ms: int | None = None
    step_ms: int | None = None
    heartbeat_ms: int | None = None


class Repeat(Struct, frozen=True, kw_only=True):
    """How a task step goes on when its worker answers "again", or where `again_while` holds.
    `limit` counts iterations."""

    delay_ms: int = 0
    limit: int = 1_000
    again_while: Condition | None = None
    """`while`: asked when the worker did not answer "again"; sees `output`, `iteration`, `last`."""


class TaskSpec(Struct, frozen=True, kw_only=True):
    """kind `task`. `input` None: the run's input, unchanged. `repeat` None: "again" still works,
    with the defaults of `Repeat`."""

    task: str
    queue: str = "default"
    input: Template | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeouts: Timeouts = field(default_factory=Timeouts)
    repeat: Repeat | None = None


class PassSpec(Struct, frozen=True, kw_only=True):
    """kind `pass`: the value of its template is its output."""

    value: Template


class ChoiceBranch(Struct, frozen=True, kw_only=True):
    """One row of a choice."""

    when: Condition
    next: str


class ChoiceSpec(Struct, frozen=True, kw_only=True):
    """kind `choice`: the first branch whose condition holds; else `default`; else NoChoice."""

    branches: tuple[ChoiceBranch, ...]
    default: str | None = None


class WaitMode(StrEnum):
    """How many signals a wait takes."""

    ANY = "any"
    """The earliest among its names."""
    ALL = "all"
    """One of each name."""
    COUNT = "count"
    """`count` of its names, whichever."""


class WaitSpec(Struct, frozen=True, kw_only=True):
    """kind `wait`. `on_timeout_next` None: the step fails with Timeout.

    `schema` (JSON Schema) is asked of each payload. `count` is 1 but for mode COUNT.
    """

    signals: tuple[str, ...]
    mode: WaitMode = WaitMode.ANY
    count: int = 1
    schema: dict[str, Any] | bool | None = None
    timeout_ms: int | None = None
    on_timeout_next: str | None = None


class SleepSpec(Struct, frozen=True, kw_only=True):
    """kind `sleep`: exactly one of a duration and an instant (RFC 3339 text or timestamp)."""

    duration_ms: int | None = None
    until: Template | None = None


class ParallelSpec(Struct, frozen=True, kw_only=True):
    """kind `parallel`: its branches run at once, each a list of its own. Without `wait_all` the
    first failure cancels the others at once.

    The branches are in the order of their names, as in the stored document.
    """

    branches: tuple[str, ...]
    wait_all: bool = False


class MapSpec(Struct, frozen=True, kw_only=True):
    """kind `map`: its list runs once for each item, at most `max_concurrency` at a time.

    So many failed items are tolerated: `tolerate_count`, or so many percent of all items.
    """

    items: Template
    as_name: str = "item"
    max_concurrency: int = 100
    tolerate_count: int = 0
    tolerate_percent: float | None = None


class RunSpec(Struct, frozen=True, kw_only=True):
    """kind `run`: a child run of the newest (or the given) version of `workflow`.

    `input` None: the input of this run, unchanged. `key` must give a string or null. Detached: the
    step is completed once the child is there.
    """

    workflow: str
    version: int | None = None
    input: Template | None = None
    key: Template | None = None
    detached: bool = False


StepSpec = (
    TaskSpec | PassSpec | ChoiceSpec | WaitSpec | SleepSpec | ParallelSpec | MapSpec | RunSpec
)


class CatchRow(Struct, frozen=True, kw_only=True):
    """One row of `catch`: where the list goes on when the step fails. `errors` None: any error;
    `when` sees `error`."""

    next: str
    errors: frozenset[str] | None = None
    when: Condition | None = None


class ListDef(Struct, frozen=True, kw_only=True):
    """One list of steps: that of the workflow (place empty), of a branch, or of a map's items.

    `steps` are the names in the order of the document; `first` those that begin with the list: one,
    or in a DAG all that name nothing in `after`.
    """

    place: str
    steps: tuple[str, ...]
    first: tuple[str, ...]
    is_dag: bool = False


class StepDef(Struct, frozen=True, kw_only=True):
    """A step of the definition. `path` is its place (core.paths): its name, for a step of the
    workflow's own list. All other steps are named within its list.

    `following` is the step after this one in its list, or None for the last. Where the run goes
    from here: `next`, else nowhere when `end`, else `following`.
    """

    path: str
    kind: StepKind
    spec: StepSpec
    when: Condition | None = None
    delay_ms: int | None = None
    next: str | None = None
    end: bool = False
    limit: int | None = None
    """The most visits; over it the step fails with VisitLimit."""
    following: str | None = None
    index: int = 0
    """Its number in its list, from 0: its bit in `reached` of the run or part."""
    after: tuple[str, ...] = ()
    """In a DAG: the steps that must have settled before it starts."""
    followers: tuple[str, ...] = ()
    """In a DAG: the steps that name it in their `after`."""
    catch: tuple[CatchRow, ...] = ()
    compensate: TaskSpec | None = None
    """The task that undoes it. `input` None: the step's output."""

    @property
    def successor(self) -> str | None:
        """Where the run goes when this step is completed or skipped (choice aside)."""
        if self.end:
            return None
        return self.next if self.next is not None else self.following


class Definition(Struct, frozen=True, kw_only=True, eq=False):
    """One immutable version of a workflow.

    `document` is the normalised JSON text that was deployed; `fingerprint` its SHA-256 in hex.
    `referenced` are the places of the steps that any expression or `after` names and of those that
    can be visited again: a run keeps their rows in memory, so that an event costs the same however
    many steps have run.
    """

    workflow: str
    document: bytes
    fingerprint: str
    steps: Mapping[str, StepDef]
    """By place, in the order of the document, those of inner lists after the step that has them."""
    lists: Mapping[str, ListDef]
    """By place: empty for the workflow's own list, else that of the branch or map."""
    undo_on_failure: bool = True
    """`on_failure: compensate`."""
    input_schema: dict[str, Any] | bool | None = None
    output: Template | None = None
    timeout_ms: int | None = None
    priority: int = 2
    tags: tuple[str, ...] = ()
    queues: frozenset[str] = frozenset()
    referenced: frozenset[str] = frozenset()

    @property
    def root(self) -> ListDef:
        """The workflow's own list."""
        return self.lists[""]
