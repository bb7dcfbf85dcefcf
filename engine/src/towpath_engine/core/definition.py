"""A deployed workflow version, parsed: what `decide` reads. Built by `core.parse` alone.

Durations are milliseconds. Expressions are compiled; `None` means "not given" everywhere.
"""

from collections.abc import Mapping
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
    """How a task step goes on when its worker answers "again". `limit` counts iterations."""

    delay_ms: int = 0
    limit: int = 1_000


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


class WaitSpec(Struct, frozen=True, kw_only=True):
    """kind `wait` for one signal. `on_timeout_next` None: the step fails with Timeout."""

    signal: str
    timeout_ms: int | None = None
    on_timeout_next: str | None = None


class SleepSpec(Struct, frozen=True, kw_only=True):
    """kind `sleep`: exactly one of a duration and an instant (RFC 3339 text or timestamp)."""

    duration_ms: int | None = None
    until: Template | None = None


StepSpec = TaskSpec | PassSpec | ChoiceSpec | WaitSpec | SleepSpec


class StepDef(Struct, frozen=True, kw_only=True):
    """A step of the definition. `path` is its name (nested lists come with nested kinds).

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
    """Its place in the document, from 0: its bit in `Run.reached`."""

    @property
    def successor(self) -> str | None:
        """Where the run goes when this step is completed or skipped (choice aside)."""
        if self.end:
            return None
        return self.next if self.next is not None else self.following


class Definition(Struct, frozen=True, kw_only=True, eq=False):
    """One immutable version of a workflow.

    `document` is the normalised JSON text that was deployed; `fingerprint` its SHA-256 in hex.
    `referenced` are the steps that any expression names and those that can be visited again: the
    store loads them with a run, so that an event costs the same however many steps have run.
    """

    workflow: str
    document: bytes
    fingerprint: str
    first: str
    steps: Mapping[str, StepDef]
    """In the order of the document."""
    input_schema: dict[str, Any] | bool | None = None
    output: Template | None = None
    timeout_ms: int | None = None
    priority: int = 2
    tags: tuple[str, ...] = ()
    queues: frozenset[str] = frozenset()
    referenced: frozenset[str] = frozenset()
