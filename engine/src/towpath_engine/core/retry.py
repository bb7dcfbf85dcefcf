"""Whether and when a failed attempt is followed by another: functions of a policy and a share."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core.definition import RetryPolicy
from towpath_engine.core.expressions.interface import ExpressionFailed, Values
from towpath_engine.core.model import Failure

RELEASE_INITIAL_MS: Final = 1_000
RELEASE_MAX_MS: Final = 60_000
# Far beyond any wait, and near enough that floats stay exact and finite.
_WAIT_MS_MAX: Final = 100 * 366 * 24 * 3600 * 1000.0


class RetryIn(Struct, frozen=True, kw_only=True):
    """Another attempt follows after `wait_ms`."""

    wait_ms: int


class NoRetry(Struct, frozen=True, kw_only=True):
    """The step fails with `failure`."""

    failure: Failure


def backoff_ms(policy: RetryPolicy, attempt: int, share: float) -> int:
    """Milliseconds between the failed `attempt` (from 1) and the next.

    initial * factor^(attempt - 1), jitter of its share either way, and the cap last, so that it
    is the longest wait there is. `share` in [0, 1) is where the jitter falls.
    """
    # The power overflows long after the wait has reached its cap.
    try:
        wait = policy.initial_ms * policy.factor ** (attempt - 1)
    except OverflowError:
        wait = _WAIT_MS_MAX
    jittered = min(wait, _WAIT_MS_MAX) * (1 + policy.jitter * (2 * share - 1))
    return max(0, min(round(jittered), policy.max_ms))


def decide_retry(  # noqa: PLR0911 - one return per rule, in their order
    policy: RetryPolicy,
    failure: Failure,
    values: Values,
    *,
    attempt: int,
    share: float,
    retry_after_ms: int | None,
) -> RetryIn | NoRetry:
    """What follows the failure of `attempt`.

    `values` are those that `retry.when` sees. An error in it is not a retry: the step fails with
    its own failure, and the ExpressionError is attached.
    """
    if attempt >= policy.max_attempts or not failure.retryable:
        return NoRetry(failure=failure)
    if failure.type in policy.never:
        return NoRetry(failure=failure)
    if policy.only is not None and failure.type not in policy.only:
        return NoRetry(failure=failure)
    if policy.when is not None:
        try:
            wanted = policy.when.evaluate(values)
        except ExpressionFailed as failed:
            return NoRetry(failure=replace(failure, attached=f"ExpressionError: {failed}"))
        if not wanted:
            return NoRetry(failure=failure)
    if retry_after_ms is not None:
        return RetryIn(wait_ms=max(0, retry_after_ms))
    return RetryIn(wait_ms=backoff_ms(policy, attempt, share))


def release_wait_ms(count: int, *, after_ms: int | None, unknown_task: bool) -> int:
    """Milliseconds before the `count`-th release in a row is dispatched again.

    A worker may ask for more, but an unknown task always backs off, 1 s to 60 s.
    """
    asked = 0 if after_ms is None else max(0, after_ms)
    if not unknown_task:
        return asked
    doublings = min(count - 1, 16)
    return max(asked, min(RELEASE_INITIAL_MS * 2**doublings, RELEASE_MAX_MS))
