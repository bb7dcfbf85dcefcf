"""Names of the headers, and how text and JSON travel in them (PROTOCOL.md, "Headers").

Header values are printable ASCII without blanks at their ends. Other text is percent-encoded
UTF-8; JSON is escaped to ASCII by its own means.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from towpath_protocol.codec import JsonValue, check_json, loads
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.limits import WireLimits
from towpath_protocol.priorities import Priority
from towpath_protocol.shapes import TAG_LENGTH_MAX, TAGS_MAX

KEY: Final = "Towpath-Key"
MESSAGE_ID: Final = "Towpath-Message-Id"
SENT_BY: Final = "Towpath-Sent-By"
PRIORITY: Final = "Towpath-Priority"
TAGS: Final = "Towpath-Tags"
CONTEXT: Final = "Towpath-Context"
RESENT: Final = "Towpath-Resent"
"""On what an engine has found in its outbox and published, maybe not for the first time."""
NATS_MSG_ID: Final = "Nats-Msg-Id"
NATS_TTL: Final = "Nats-TTL"
TRACEPARENT: Final = "traceparent"
CONTENT_TYPE: Final = "Content-Type"
SERVICE_ERROR: Final = "Nats-Service-Error"
SERVICE_ERROR_CODE: Final = "Nats-Service-Error-Code"

MESSAGEPACK_TYPE: Final = "application/msgpack"

# Printable ASCII but the percent sign itself.
_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_PLAIN: Final = re.compile(r"[\x21-\x24\x26-\x7e]+")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def encode_text(text: str) -> str:
    """Text as a header value: printable ASCII stays, all else and `%` become `%XX` of UTF-8."""
    if _PLAIN.fullmatch(text):
        return text
    try:
        encoded = quote(text, safe=_SAFE)
    except UnicodeEncodeError as error:
        raise ProtocolError(
            ErrorCode.BAD_HEADER, "has half a surrogate pair", fix="use whole characters"
        ) from error
    # Blanks at the ends would be trimmed on the way.
    inner = encoded.lstrip(" ")
    leading = len(encoded) - len(inner)
    trailing = len(inner) - len(inner.rstrip(" "))
    return "%20" * leading + inner.rstrip(" ") + "%20" * trailing


def decode_text(value: str, field: str) -> str:
    """The text of a header value. A `%` that no two hex digits follow stays as it is.

    Raises ProtocolError (`bad_header`, with the header's name as field).
    """
    if "%" not in value and value.isascii():
        return value
    try:
        return unquote_to_bytes(value.encode()).decode()
    except UnicodeError as error:
        raise ProtocolError(
            ErrorCode.BAD_HEADER,
            "is not percent-encoded UTF-8",
            field=field,
            fix="encode text as UTF-8, then every byte that is not printable ASCII as %XX",
        ) from error


def encode_json(value: bytes) -> str:
    """JSON text as a header value: one line of ASCII."""
    return json.dumps(loads(value), separators=(",", ":"), allow_nan=False)


def decode_json(value: str, field: str, *, bytes_max: int) -> bytes:
    """The JSON text of a header value. Raises ProtocolError as `check_json` does."""
    data = value.encode("utf-8", "surrogateescape")
    check_json(data, bytes_max=bytes_max, field=field)
    return data


def encode_tags(tags: Sequence[str]) -> str:
    """Tags as a header value: a JSON array of strings."""
    return json.dumps(list(tags), separators=(",", ":"))


def decode_tags(value: str, field: str = TAGS) -> tuple[str, ...]:
    """Tags of a header value: a JSON array of strings, or percent-encoded texts between commas.

    Raises ProtocolError (`bad_header`).
    """
    if not value.lstrip().startswith("["):
        return tuple(decode_text(tag.strip(), field) for tag in value.split(",") if tag.strip())
    decoded: JsonValue = loads(decode_json(value, field, bytes_max=len(value) * 4))
    tags = decoded if isinstance(decoded, list) else []
    texts = tuple(tag for tag in tags if isinstance(tag, str))
    if len(texts) != len(tags):
        raise ProtocolError(
            ErrorCode.BAD_HEADER,
            "is not a list of texts",
            field=field,
            fix='write ["a","b"] or a,b',
        )
    return texts


def decode_traceparent(value: str | None) -> str | None:
    """A well-formed W3C `traceparent`, or None: a broken one is dropped, it fails nothing."""
    return value if value is not None and _TRACEPARENT.fullmatch(value) else None


def get(headers: Mapping[str, str], name: str) -> str | None:
    """The raw value of a header, whatever the case of its name; None when it is absent."""
    exact = headers.get(name)
    if exact is not None:
        return exact
    wanted = name.lower()
    return next((value for key, value in headers.items() if key.lower() == wanted), None)


def get_text(headers: Mapping[str, str], name: str) -> str | None:
    """The text of a header; None when it is absent. Raises ProtocolError (`bad_header`)."""
    value = get(headers, name)
    return None if value is None else decode_text(value, name)


def get_priority(headers: Mapping[str, str]) -> Priority | None:
    """`Towpath-Priority`; None when it is absent. Raises ProtocolError (`bad_header`)."""
    value = get(headers, PRIORITY)
    if value is None:
        return None
    try:
        return Priority(value.strip().lower())
    except ValueError as error:
        raise ProtocolError(
            ErrorCode.BAD_HEADER,
            f"{value[:40]!a} is no priority",
            field=PRIORITY,
            fix=f"use one of {', '.join(Priority)}",
        ) from error


def get_tags(headers: Mapping[str, str]) -> tuple[str, ...]:
    """`Towpath-Tags`; empty when it is absent.

    Raises ProtocolError (`bad_header`), also for more or longer tags than a run may have.
    """
    value = get(headers, TAGS)
    tags = () if value is None else decode_tags(value)
    if len(tags) > TAGS_MAX or not all(1 <= len(tag) <= TAG_LENGTH_MAX for tag in tags):
        raise ProtocolError(
            ErrorCode.BAD_HEADER,
            "has too many tags, or one that is empty or too long",
            field=TAGS,
            fix=f"send at most {TAGS_MAX} of 1 to {TAG_LENGTH_MAX} characters",
        )
    return tags


def get_context(headers: Mapping[str, str], bytes_max: int) -> bytes | None:
    """`Towpath-Context`, a JSON object as text; None when it is absent.

    Raises ProtocolError: `bad_header` when it is no object, else as `check_json` does.
    """
    value = get(headers, CONTEXT)
    if value is None:
        return None
    context = decode_json(value, CONTEXT, bytes_max=bytes_max)
    if not context.lstrip().startswith(b"{"):
        raise ProtocolError(
            ErrorCode.BAD_HEADER, "is no JSON object", field=CONTEXT, fix='write {"tenant":"a"}'
        )
    return context


def check_headers(headers: Mapping[str, str], limits: WireLimits) -> None:
    """Refuse headers that are too large as a whole, or one of ours that is no printable ASCII.

    Headers of others only count; what stands in them is none of our business.
    Raises ProtocolError (`too_large`, or `bad_header` naming the header).
    """
    size = len("NATS/1.0\r\n\r\n")
    for name, value in headers.items():
        ours = name.lower().startswith("towpath-")
        if ours and not (value.isascii() and value.isprintable()):
            raise ProtocolError(
                ErrorCode.BAD_HEADER, "is not printable ASCII", field=name, fix="percent-encode it"
            )
        size += len(name) + len(value.encode("utf-8", "surrogatepass")) + len(": \r\n")
    if size > limits.headers_bytes_max:
        raise ProtocolError(
            ErrorCode.TOO_LARGE,
            f"{size} bytes, and the limit is {limits.headers_bytes_max}",
            field="headers",
            fix="put data into the body",
        )
