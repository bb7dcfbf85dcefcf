"""The failure that a worker reports, and that the next attempt is told about."""

from typing import Annotated, Final

from msgspec import Meta, Struct, field

from towpath_protocol.raw import OptionalRaw

DURATION_MS_MAX: Final = 100 * 366 * 24 * 3600 * 1000
"""Longest duration a message may name: a hundred years, so that instants stay within year 9999."""

DurationMs = Annotated[int, Meta(ge=0, le=DURATION_MS_MAX)]
"""Milliseconds, 0 to a hundred years."""


def _retryable() -> bool:
    # A factory, since msgspec would leave a plain default out, and readers in languages where an
    # absent field is false must not take a retryable failure for a final one.
    return True


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt failed. `type` is the word that `retry.only` and `never` match.

    `retryable` False ends the step at once; `retry_after_ms` overrides the computed backoff;
    `details` is any JSON value; `stack` is text for a person.
    """

    type: str
    message: str
    retryable: bool = field(default_factory=_retryable)
    details: OptionalRaw = None
    stack: str | None = None
    retry_after_ms: DurationMs | None = None
