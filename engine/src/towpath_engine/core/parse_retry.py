"""Reading a retry policy: the workflow's default, and what a step says otherwise.

A step's `retry` overrides the workflow's field by field, its `backoff` too.
"""

from typing import Final

from msgspec.structs import replace

from towpath_engine.core.definition import RetryPolicy
from towpath_engine.core.expressions.interface import Visible
from towpath_engine.core.expressions_of import ERROR, Expressions
from towpath_engine.core.faults import FaultCode
from towpath_engine.core.fields import Fields

_RETRY: Final = frozenset({"max_attempts", "backoff", "only", "never", "when"})
_BACKOFF: Final = frozenset({"initial", "factor", "max", "jitter"})


def read_retry(
    parent: Fields,
    expressions: Expressions,
    *,
    base: RetryPolicy,
    visible: Visible,
    field: str,
) -> RetryPolicy:
    """The policy of the object with the field `retry`; `base` where it says nothing.

    `visible` is what its `when` may name besides `error`, `field` how errors at run time name it.
    """
    fields = parent.object("retry", _RETRY)
    if fields is None:
        return base
    policy = base
    count = fields.count("max_attempts")
    if count is not None:
        policy = replace(policy, max_attempts=count)
    only, never = fields.texts("only"), fields.texts("never")
    if only is not None:
        policy = replace(policy, only=frozenset(only))
        if not only and not fields.values["only"]:
            fields.fault("only", "is empty: no error would be retried", FaultCode.BAD_VALUE)
    if never is not None:
        policy = replace(policy, never=frozenset(never))
    overlap = sorted((policy.only or frozenset()) & policy.never)
    if overlap:
        message = f"`only` and `never` both name {', '.join(overlap)}"
        fields.fault("never" if never is not None else "only", message, FaultCode.CONFLICT)
    seen = replace(visible, names=visible.names | ERROR)
    when = expressions.condition(fields, "when", visible=seen, field=field)
    if when is not None:
        policy = replace(policy, when=when)
    return _read_backoff(fields, policy)


def _read_backoff(parent: Fields, policy: RetryPolicy) -> RetryPolicy:
    fields = parent.object("backoff", _BACKOFF)
    if fields is None:
        return policy
    initial_ms, max_ms = fields.duration("initial"), fields.duration("max")
    factor, jitter = fields.number("factor", 1, 10), fields.number("jitter", 0, 1)
    if initial_ms is not None:
        policy = replace(policy, initial_ms=initial_ms, max_ms=max(policy.max_ms, initial_ms))
    if max_ms is not None:
        policy = replace(policy, max_ms=max_ms)
    if policy.initial_ms > policy.max_ms:
        message = "is shorter than the initial wait"
        fields.fault("max", message, FaultCode.CONFLICT)
    if factor is not None:
        policy = replace(policy, factor=factor)
    if jitter is not None:
        policy = replace(policy, jitter=jitter)
    return policy
