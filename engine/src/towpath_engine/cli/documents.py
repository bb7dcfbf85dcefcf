"""Reads the files that people write, JSON and YAML; every fault has its file and its line."""

import json
import math
import re
import sys
from pathlib import Path

import yaml

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
    from towpath_engine.core.yaml_text import YamlRefused, read_yaml

    try:
        return read_yaml(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DocumentError(f"{name}: not UTF-8 at byte {error.start}") from error
    except YamlRefused as error:
        raise DocumentError(_with_line(error, name)) from error


def _with_line(error: Exception, name: str) -> str:
    """`name:line: message`, the line from the message or from the parser's own error."""
    cause = error.__cause__
    if isinstance(cause, yaml.MarkedYAMLError):
        mark = cause.problem_mark or cause.context_mark
        problem = cause.problem or cause.context or "malformed"
        return f"{name}:{mark.line + 1}: not YAML: {problem}" if mark else f"{name}: {problem}"
    if found := re.fullmatch(r"line (\d+): (.*)", str(error), re.DOTALL):
        return f"{name}:{found[1]}: {found[2]}"
    return f"{name}: {error}"


def _finite(text: str) -> float:
    number = float(text)
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
