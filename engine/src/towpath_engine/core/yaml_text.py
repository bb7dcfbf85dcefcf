# The stubs of PyYAML leave most members untyped; every value is checked here before it leaves.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""YAML as JSON means it, read from PyYAML's events into a value, without recursion.

Only what YAML 1.2's core schema shares with JSON has a type; `yes`, `on`, `2024-01-01` and `0o7`
are strings. Aliases, tags, keys that are there twice or are no strings are refused.
"""

import re
from typing import Final

import yaml

NODES_MAX: Final = 200_000
DEPTH_MAX: Final = 64
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,4000})", re.ASCII)
_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII)
_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None, "~": None, "": None}


class YamlRefused(ValueError):  # noqa: N818 - named for what happened, as its siblings
    """The text is no YAML, or not of the kind that is accepted; the message names the line."""


class _Builder:
    """Puts the values of a document together; `stack` holds the collections that are open."""

    def __init__(self) -> None:
        self.root: object = None
        self._stack: list[tuple[dict[str, object] | list[object], str | None]] = []
        self._count = 0

    def add(self, value: object, *, at: str, is_text: bool) -> None:
        """A scalar, or a collection that begins: the next key, or the next value."""
        self._count += 1
        if self._count > NODES_MAX:
            raise YamlRefused(f"has more than {NODES_MAX} values")
        if not self._stack:
            self.root = value
            return
        container, key = self._stack[-1]
        if isinstance(container, list):
            container.append(value)
        elif key is not None:
            container[key] = value
            self._stack[-1] = (container, None)
        else:
            self._stack[-1] = (container, self._as_key(container, value, at=at, is_text=is_text))

    def _as_key(
        self, container: dict[str, object], value: object, *, at: str, is_text: bool
    ) -> str:
        if not is_text or not isinstance(value, str):
            raise YamlRefused(f"{at}: a key must be a string; put it in quotes")
        if value in container:
            raise YamlRefused(f"{at}: the key {value!r} is there twice")
        return value

    def open(self, container: dict[str, object] | list[object], *, at: str) -> None:
        """A collection begins."""
        self.add(container, at=at, is_text=False)
        self._stack.append((container, None))
        if len(self._stack) > DEPTH_MAX:
            raise YamlRefused(f"{at}: is nested deeper than {DEPTH_MAX}")

    def close(self) -> None:
        """The innermost collection ends."""
        self._stack.pop()


def read_yaml(text: str) -> object:
    """The value of a text with one document. Raises YamlRefused."""
    builder = _Builder()
    documents = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise YamlRefused("holds more than one document")
            _take(builder, event)
    except yaml.YAMLError as error:
        raise YamlRefused(" ".join(str(error).split())[:300]) from error
    return builder.root


def _take(builder: _Builder, event: yaml.Event) -> None:
    mark = event.start_mark
    at = "" if mark is None else f"line {mark.line + 1}"
    if isinstance(event, yaml.AliasEvent):
        raise YamlRefused(f"{at}: aliases are not allowed")
    if isinstance(event, yaml.ScalarEvent):
        _refuse_tag(event.tag, at)
        plain = bool(event.implicit[0])
        value = _plain(str(event.value), at) if plain else str(event.value)
        builder.add(value, at=at, is_text=isinstance(value, str))
    elif isinstance(event, yaml.MappingStartEvent):
        _refuse_tag(event.tag, at)
        builder.open({}, at=at)
    elif isinstance(event, yaml.SequenceStartEvent):
        _refuse_tag(event.tag, at)
        builder.open([], at=at)
    elif isinstance(event, yaml.CollectionEndEvent):
        builder.close()


def _refuse_tag(tag: object, at: str) -> None:
    if tag is not None:
        raise YamlRefused(f"{at}: tags are not allowed")


def _plain(text: str, at: str) -> object:
    """The value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text in ("True", "TRUE", "False", "FALSE", "Null", "NULL"):
        raise YamlRefused(f"{at}: write {text.lower()}, or put it in quotes")
    return text
