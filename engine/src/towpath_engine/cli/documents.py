"""Reads what people write: JSON, and YAML of the kind that JSON can express.

YAML is read by the core schema of YAML 1.2: only `true` and `false` are booleans, only decimal,
0o and 0x are integers, times are text. Keys are text and appear once; anchors are refused, since
a few lines of them make gigabytes. Every fault has its line.
"""

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_FILE_BYTES_MAX = 16 * 1024 * 1024


class DocumentError(Exception):
    """A document can't be read. The message begins with the file and the line."""


def read_file(name: str) -> bytes:
    """The bytes of the file, of standard input for `-`. Raises DocumentError."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_FILE_BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise DocumentError(f"{name}: the file does not exist") from error
    except OSError as error:
        raise DocumentError(f"{name}: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise DocumentError(f"{name}: larger than {_FILE_BYTES_MAX // 1024 // 1024} MiB")
    return data


def parse_document(data: bytes, name: str) -> object:
    """JSON if the name ends in `.json`, else YAML (of which JSON is nearly a part)."""
    return parse_json(data, name) if name.endswith(".json") else parse_yaml(data, name)


def parse_json(data: bytes | str, name: str) -> object:
    """The value. Raises DocumentError, also for duplicate keys and NaN."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        return json.loads(
            text,
            object_pairs_hook=_unique_pairs,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise DocumentError(f"{name}: not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise DocumentError(f"{name}:{error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise DocumentError(f"{name}: nested too deeply") from error
    except ValueError as error:
        raise DocumentError(f"{name}: {error}") from error


def parse_yaml(data: bytes, name: str) -> object:
    """The value of the only document. Raises DocumentError."""
    try:
        loader = yaml.SafeLoader(data.decode("utf-8-sig"))
        _use_core_schema(loader)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        if node is None:
            raise DocumentError(f"{name}: the document is empty")
        return _value(node, name, seen=set())
    except UnicodeDecodeError as error:
        raise DocumentError(f"{name}: not UTF-8 at byte {error.start}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise DocumentError(f"{where}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        what = str(error).splitlines()[0]
        raise DocumentError(f"{name}: not YAML: {what}") from error
    except RecursionError as error:
        raise DocumentError(f"{name}: nested too deeply") from error


_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _use_core_schema(loader: yaml.SafeLoader) -> None:
    """Plain scalars stay text until `_scalar` looks at them: no YAML 1.1 resolver runs."""
    loader.yaml_implicit_resolvers = {}


def _value(node: Node, name: str, *, seen: set[int]) -> object:
    if id(node) in seen:
        raise DocumentError(f"{_at(node, name)}: anchors and aliases are not supported")
    seen.add(id(node))
    match node:
        case MappingNode():
            return _mapping(node, name, seen=seen)
        case SequenceNode():
            _require_tag(node, "seq", name)
            return [_value(item, name, seen=seen) for item in node.value]
        case ScalarNode():
            return _scalar(node, name)
        case _:
            raise DocumentError(f"{_at(node, name)}: not a value of JSON")


def _mapping(node: MappingNode, name: str, *, seen: set[int]) -> dict[str, object]:
    _require_tag(node, "map", name)
    result: dict[str, object] = {}
    for key_node, value_node in node.value:
        key = _value(key_node, name, seen=seen)
        if not isinstance(key, str):
            raise DocumentError(f"{_at(key_node, name)}: keys must be text, quote this one")
        if key in result:
            raise DocumentError(f"{_at(key_node, name)}: duplicate key {key!r}")
        result[key] = _value(value_node, name, seen=seen)
    return result


def _scalar(node: ScalarNode, name: str) -> object:
    text = node.value
    _require_tag(node, "str", name)
    if node.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    number: Callable[[str], object]
    if _INT.fullmatch(text):
        number = _integer
    elif _FLOAT.fullmatch(text):
        number = _finite
    else:
        return text
    try:
        return number(text)
    except ValueError as error:
        raise DocumentError(f"{_at(node, name)}: {error}") from error


def _require_tag(node: Node, kind: str, name: str) -> None:
    if node.tag != f"tag:yaml.org,2002:{kind}":
        raise DocumentError(f"{_at(node, name)}: the tag {node.tag} is not supported")


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text[2:] if base != 10 else text, base)


def _finite(text: str) -> float:
    number = float(text.replace(".inf", "inf").replace(".nan", "nan")) if text else math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of JSON")
    return number


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"duplicate key {double!r}")
    return result


def _at(node: Node, name: str) -> str:
    return f"{name}:{node.start_mark.line + 1}"
