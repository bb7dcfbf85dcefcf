"""Engine → engine: messages between a run and the child runs of its `run` steps.

They say that something is to be looked at, not what is so: whoever receives one reads the row of
the other run. A lost one is made up for by a sweep, a repeated one changes nothing.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

from towpath_protocol.versions import current_version

PATH_LENGTH_MAX = 2_048
"""Of the path of a step as the engine stores it."""
REASON_LENGTH_MAX = 1_024

Path = Annotated[str, Meta(min_length=1, max_length=PATH_LENGTH_MAX)]
Reason = Annotated[str, Meta(max_length=REASON_LENGTH_MAX)]


class ChildStart(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="child.start"
):
    """The step `step` of the parent wants its child run started."""

    v: int = field(default_factory=current_version)
    step: Path


class ChildCancel(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="child.cancel"
):
    """The step `step` of the parent does not wait for its child any more. `compensate` null: the
    child is undone as its workflow says."""

    v: int = field(default_factory=current_version)
    step: Path
    reason: Reason = ""
    compensate: bool | None = None


class ChildSettled(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="child.settled"
):
    """The child run has settled."""

    v: int = field(default_factory=current_version)
