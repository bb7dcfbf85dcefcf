"""The text of a definition: JSON, or YAML on input, made into one normalised form.

Normalised is the JSON text with sorted keys and without blanks: the same content gives the same
text, and so the same fingerprint, whatever the order of its keys and whether it came as YAML.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from towpath_engine.core.faults import DefinitionRefused, Fault, FaultCode
from towpath_engine.core.fields import is_object, kind_of
from towpath_engine.core.yaml_text import read_yaml
from towpath_protocol import codec
from towpath_protocol.codec import JsonValue
from towpath_protocol.errors import ProtocolError
from towpath_protocol.json_check import check_json

DEFINITION_BYTES_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 64


def read_document(document: bytes | Mapping[str, object]) -> dict[str, JsonValue]:
    """The object that the text (JSON, else YAML) says. Raises DefinitionRefused."""
    if not isinstance(document, bytes):
        # Through text and back, so that nothing but JSON's types is left in it.
        return _read_json(_dumped(dict(document)))
    if len(document) > DEFINITION_BYTES_MAX:
        raise _refused(
            f"has {len(document)} bytes, the limit is {DEFINITION_BYTES_MAX}", FaultCode.TOO_LARGE
        )
    if document.lstrip()[:1] == b"{":
        return _read_json(document)
    return _read_yaml(document)


def normalise(document: Mapping[str, object]) -> bytes:
    """The normalised JSON text. Raises DefinitionRefused when it is larger than a definition may
    be, or not JSON at all."""
    _dumped(dict(document))
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


def fingerprint(normalised: bytes) -> str:
    """SHA-256 of the normalised text, in hex."""
    return hashlib.sha256(normalised).hexdigest()


def _dumped(document: object) -> bytes:
    try:
        text = codec.dumps(document)
    except ProtocolError as error:
        raise _refused(str(error), FaultCode.MALFORMED) from error
    if len(text) > DEFINITION_BYTES_MAX:
        raise _refused(
            f"has {len(text)} bytes, the limit is {DEFINITION_BYTES_MAX}", FaultCode.TOO_LARGE
        )
    return text


def _read_json(document: bytes) -> dict[str, JsonValue]:
    try:
        check_json(document, bytes_max=DEFINITION_BYTES_MAX, depth_max=DEPTH_MAX)
        value: object = codec.loads(document)
    except ProtocolError as error:
        raise _refused(str(error), FaultCode.MALFORMED) from error
    return _whole(value)


def _whole(value: object) -> dict[str, JsonValue]:
    if not is_object(value):
        raise _refused(f"must be an object, not {kind_of(value)}", FaultCode.MALFORMED)
    return value


def _refused(message: str, code: FaultCode) -> DefinitionRefused:
    return DefinitionRefused((Fault(path="", message=message, code=code),))


def _read_yaml(document: bytes) -> dict[str, JsonValue]:
    try:
        value = read_yaml(document.decode())
    except ValueError as error:
        raise _refused(f"is neither JSON nor YAML: {error}", FaultCode.MALFORMED) from error
    return _read_json(_dumped(_whole(value)))
