"""The AsyncAPI 3 document of the protocol, seen from the engine: it sends dispatches and events,
and receives reports, signals, starts and requests."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard

from towpath_protocol.catalogue import MESSAGES
from towpath_protocol.subjects import InKind
from towpath_protocol.verbs import VERBS

Node = dict[str, object]

_PARAMETERS: Final = {
    "prefix": "Subject prefix of the installation, `towpath` unless set otherwise.",
    "queue": "Queue that the worker pool pulls from.",
    "level": "Priority: 0 critical, 1 high, 2 normal, 3 low.",
    "run_id": "Run id: a UUIDv7 in lower case.",
    "token": "Token of the dispatch, the fence.",
    "workflow": "Name of the workflow.",
    "signal": "Name of the signal.",
    "spread": "`-`, or any token of 1 to 64 letters, digits, `_`, `-`; same key, same token.",
    "event": "Name of the event.",
    "child": "Id of the child run.",
    "parent": "Id of its parent.",
    "consumer": "Consumer of the dispatch stream, `<queue>_p<level>`.",
    "stream": "The dispatch stream.",
}
_STEP: Final = "{queue}.{run_id}.{token}"


_PLAIN: Final = re.compile(r"[A-Za-z$][A-Za-z0-9_.$-]*")


def _is_node(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list)


def _scalar(value: object) -> str:
    # JSON's scalars and empty containers are YAML's, too.
    return json.dumps(value, ensure_ascii=False)


def _yaml(node: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Lines of block-style YAML; written by hand so that no library's version changes them."""
    for key, value in node.items():
        name = key if _PLAIN.fullmatch(key) else _scalar(key)
        if _is_node(value) and value:
            yield f"{indent}{name}:"
            yield from _yaml(value, indent + "  ")
        elif _is_list(value):
            yield f"{indent}{name}: [{', '.join(_scalar(part) for part in value)}]"
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _ref(path: str) -> Node:
    return {"$ref": f"#/{path}"}


def _slug(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _channel(address: str, description: str, *messages: str) -> Node:
    names = [name for name in _PARAMETERS if f"{{{name}}}" in address]
    return {
        "address": address,
        "description": description,
        "messages": {_slug(name): _ref(f"components/messages/{_slug(name)}") for name in messages},
        "parameters": {name: _ref(f"components/parameters/{name}") for name in names},
    }


def _stream_channels() -> dict[str, Node]:
    channels = {
        "dispatch": _channel(
            "{prefix}.dispatch.{queue}.{level}.{run_id}.{token}",
            "Stream P_DISPATCH, a work queue; pulled through the consumer `<queue>_p<level>`.",
            "step.dispatch",
        ),
        "events": _channel(
            "{prefix}.events.{workflow}.{run_id}.{event}", "Stream P_EVENTS.", "run.event"
        ),
        "control": _channel(
            "{prefix}.control.{queue}", "Core messages; may be lost.", "step.cancel"
        ),
        "signal": _channel("{prefix}.in.signal.-.{run_id}.{signal}", "Stream P_IN.", "user.value"),
        "signal_key": _channel(
            "{prefix}.in.signal-key.{workflow}.{spread}.{signal}", "Stream P_IN.", "user.value"
        ),
        "start": _channel("{prefix}.in.start.{workflow}.{spread}.-", "Stream P_IN.", "user.value"),
        "advisories": _channel(
            "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.{consumer}",
            "Stream P_ADV; MSG_TERMINATED likewise.",
            "delivery.advisory",
        ),
    }
    for kind in InKind:
        if kind.startswith("step-"):
            channels[_slug(kind)] = _channel(
                f"{{prefix}}.in.{kind}.{_STEP}", "Stream P_IN.", kind.replace("-", ".", 1)
            )
    between = {"child-start": "{child}.{parent}", "child-cancel": "{child}.{parent}"}
    for kind in (InKind.CHILD_START, InKind.CHILD_CANCEL, InKind.CHILD_SETTLED):
        place = between.get(kind, "{parent}.{child}")
        channels[_slug(kind)] = _channel(
            f"{{prefix}}.in.{kind}.-.{place}",
            "Stream P_IN, between engines.",
            kind.replace("-", ".", 1),
        )
    return channels


def _requests() -> dict[str, tuple[str, str, str]]:
    """Channel → address, request message, reply message."""
    found = {
        "worker_heartbeat": (
            "{prefix}.heartbeat.{queue}", "worker.heartbeat.request", "worker.heartbeat.reply"
        )
    }  # fmt: skip
    for name, verb in VERBS.items():
        if verb.built:
            found[_slug(name)] = (f"{{prefix}}.api.{name}", f"{name}.request", f"{name}.reply")
    return found


def _operations(streams: dict[str, Node]) -> Node:
    sent = {"dispatch", "events", "control"}
    operations: Node = {}
    for name in streams:
        action = "send" if name in sent else "receive"
        operations[f"{action}_{name}"] = {"action": action, "channel": _ref(f"channels/{name}")}
    for name in _requests():
        operations[f"answer_{name}"] = {
            "action": "receive",
            "channel": _ref(f"channels/{name}"),
            "reply": {
                "address": {
                    "description": "The reply subject; begins with `_INBOX` or `_R_`.",
                    "location": "$message.header#/reply",
                },
                "channel": _ref(f"channels/{name}_reply"),
            },
        }
    return operations


def _messages() -> Node:
    messages: Node = {
        _slug(name): {
            "name": name,
            "contentType": "application/json",
            "payload": {"$ref": f"./schemas/v1/{name}.json"},
        }
        for name in MESSAGES
    }
    messages["user_value"] = {
        "name": "user.value",
        "contentType": "application/json",
        "description": "The payload or input itself: any JSON value; an empty body is null.",
        "headers": _ref("components/schemas/SenderHeaders"),
        "payload": {},
    }
    return messages


def _sender_headers() -> Node:
    names = ("Key", "Message-Id", "Sent-By", "Priority", "Tags", "Context")
    return {
        "type": "object",
        "properties": {f"Towpath-{name}": {"type": "string"} for name in names},
    }


def asyncapi_yaml() -> str:
    """The document as YAML."""
    streams = _stream_channels()
    channels: Node = dict(streams)
    for name, (address, request, reply) in _requests().items():
        channels[name] = _channel(address, "Request; the reply goes to its reply subject.", request)
        channels[f"{name}_reply"] = {
            "address": None,
            "description": "The reply, or an error with `Nats-Service-Error-Code`.",
            "messages": {
                _slug(part): _ref(f"components/messages/{_slug(part)}") for part in (reply, "error")
            },
        }
    not_yet = ", ".join(name for name, verb in VERBS.items() if not verb.built)
    document: Node = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Towpath",
            "version": "1",
            "description": "GENERATED by tools/generate.py. The norm is PROTOCOL.md; this document "
            f"repeats its shapes. Verbs that answer 422 `not_yet`: {not_yet}.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": _operations(streams),
        "components": {
            "messages": _messages(),
            "parameters": {name: {"description": text} for name, text in _PARAMETERS.items()},
            "schemas": {"SenderHeaders": _sender_headers()},
        },
    }
    return "\n".join(_yaml(document)) + "\n"
