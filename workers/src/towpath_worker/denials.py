"""What NATS does not let this user do: rights that are missing, read from what the server says.

A server that refuses a publish or a subscription says so in a line of its own, and to whoever waits
for an answer nothing at all: without this a missing right looks like an engine that is away.
"""

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

_VIOLATION: Final = re.compile(
    r"Permissions Violation for (?P<action>Publish|Subscription) to \"(?P<subject>[^\"]+)\"",
    re.IGNORECASE,
)
_REPORT_TOKENS: Final = 6
"""`<prefix>.in.<kind>.<scope>.<run_id>.<name>`"""


class DeniedAction(StrEnum):
    """What was refused."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


class Denial(Struct, frozen=True):
    """A refusal: `subject` is the one that was sent."""

    action: DeniedAction
    subject: str

    @property
    def right(self) -> str:
        """The subject as a list of rights has it: wild where each message has a name of its own."""
        tokens = self.subject.split(".")
        if self.subject.startswith("$JS.ACK."):
            return ".".join([*tokens[:4], ">"])
        if self.subject.startswith(("_INBOX", "_R_")):
            return f"{tokens[0]}.>"
        if len(tokens) == _REPORT_TOKENS and tokens[1] == "in":
            return ".".join([*tokens[:4], "*", "*"])
        return self.subject

    def deafens(self, inbox_prefix: str) -> bool:
        """Whether nobody with this inbox prefix can hear an answer."""
        subscribes = self.action is DeniedAction.SUBSCRIBE
        return subscribes and self.subject.startswith(f"{inbox_prefix}.")


def denial_in(line: str) -> Denial | None:
    """The refusal that a line of the server tells; None for any other line."""
    found = _VIOLATION.search(line)
    if found is None:
        return None
    publish = found["action"].lower() == DeniedAction.PUBLISH
    action = DeniedAction.PUBLISH if publish else DeniedAction.SUBSCRIBE
    return Denial(action, found["subject"])


def in_words(denial: Denial, inbox_prefix: str) -> str:
    """What is missing, and what to do about it."""
    right = f"a right is missing in NATS: this user may not {denial.action} to {denial.right}"
    if denial.deafens(inbox_prefix):
        return (
            f"{right}, where answers arrive: `towpath nats-permissions` prints the rights of a "
            "pool, --client or --operator, and the inbox of each, which belongs into "
            "TOWPATH_NATS_INBOX_PREFIX"
        )
    return (
        f"{right}: `towpath nats-permissions` prints the rights that a pool, --client or "
        "--operator needs"
    )
