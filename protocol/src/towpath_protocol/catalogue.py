"""Every message of the protocol by name: what golden examples, schemas and AsyncAPI go by."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from towpath_protocol.children import ChildCancel, ChildSettled, ChildStart
from towpath_protocol.dispatch import (
    DeliveryAdvisory,
    StepCancel,
    StepDispatch,
    WorkerHeartbeat,
    WorkerHeartbeatReply,
)
from towpath_protocol.errors import ErrorBody
from towpath_protocol.events import RunEvent
from towpath_protocol.reports import REPORT_TYPES
from towpath_protocol.verbs import VERBS


def _api_messages() -> dict[str, type[Struct]]:
    found: dict[str, type[Struct]] = {}
    for name, verb in VERBS.items():
        if verb.request is not None and verb.reply is not None:
            found[f"{name}.request"] = verb.request
            found[f"{name}.reply"] = verb.reply
    return found


MESSAGES: Final[Mapping[str, type[Struct]]] = {
    "step.dispatch": StepDispatch,
    "step.cancel": StepCancel,
    **{kind.replace("-", ".", 1): shape for kind, shape in REPORT_TYPES.items()},
    "child.start": ChildStart,
    "child.cancel": ChildCancel,
    "child.settled": ChildSettled,
    "worker.heartbeat.request": WorkerHeartbeat,
    "worker.heartbeat.reply": WorkerHeartbeatReply,
    "run.event": RunEvent,
    "delivery.advisory": DeliveryAdvisory,
    "error": ErrorBody,
    **_api_messages(),
}
"""Name → struct. The bodies of signals and starts are the user's own JSON and have none."""
