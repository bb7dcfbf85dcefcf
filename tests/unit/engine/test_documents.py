import io
import sys
from pathlib import Path

import pytest

from towpath_engine.cli.documents import (
    DocumentError,
    parse_document,
    parse_json,
    parse_yaml,
    read_file,
)


def refusal(text: str | bytes, name: str = "order.yaml") -> str:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(DocumentError) as refused:
        parse_document(data, name)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on: no", {"on": "no"}),
        ("a: true\nb: ~\nc: 1.0\nd: '5'", {"a": True, "b": None, "c": 1.0, "d": "5"}),
        ("a: 2026-11-29\nb: 12:30", {"a": "2026-11-29", "b": "12:30"}),
        ("\ufeff- ü\n- [1, {b: c}]", ["ü", [1, {"b": "c"}]]),
        ('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
    ],
)
def test_yaml_means_what_json_can_say(text: str, value: object) -> None:
    assert repr(parse_yaml(text.encode(), "order.yaml")) == repr(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "order.yaml:3: the key 'a' is there twice"),
        ("a:\n  1: x", "order.yaml:2: a key must be a string"),
        ("a: &x 1\nb: *x", "order.yaml:2: aliases are not allowed"),
        ("a: !!python/object/apply:os.system [ls]", "order.yaml:1: tags are not allowed"),
        ("\na: [1, 2", "order.yaml:2: not YAML"),
        ("a: b: c", "order.yaml:1: not YAML: mapping values are not allowed here"),
        ("a: 1\n\tb: 2", "order.yaml:2: not YAML"),
        ("a: 1\n---\nb: 2", "order.yaml: holds more than one document"),
        (b"a: \xff", "order.yaml: not UTF-8 at byte 3"),
        ("a: \x00", "order.yaml: "),
        ("[" * 5_000 + "]" * 5_000, "order.yaml:1: is nested deeper than 64"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_line(text: str | bytes, message: str) -> None:
    said = refusal(text)
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"a": 1,\n}', "in.json:3: not JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "in.json: duplicate key 'c'"),
        ('{"a": NaN}', "in.json: NaN is not a number of JSON"),
        ('{"a": -Infinity}', "in.json: -Infinity is not a number of JSON"),
        ('{"a": 1e400}', "in.json: 1e400 is not a number of JSON"),
        (b"\xff", "in.json: not UTF-8 at byte 0"),
        ("[" * 100_000, "in.json: nested too deeply"),
        ("", "in.json:1: not JSON"),
    ],
)
def test_json_is_refused_in_the_same_way(text: str | bytes, message: str) -> None:
    assert message in refusal(text, "in.json")


def test_json_keeps_numbers_as_they_are() -> None:
    value = parse_json('{"a": 9007199254740993, "b": 1.0}', "--input")
    assert repr(value) == "{'a': 9007199254740993, 'b': 1.0}"


def test_a_file_is_read_and_a_missing_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert read_file(str(tmp_path / "x")) == b"abc"
    with pytest.raises(DocumentError, match="does not exist"):
        read_file(str(tmp_path / "y"))
    with pytest.raises(DocumentError, match="Is a directory"):
        read_file(str(tmp_path))


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: 1")))
    assert read_file("-") == b"a: 1"


def test_a_file_larger_than_16_mib_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(DocumentError, match="larger than 16 MiB"):
        read_file(str(tmp_path / "big"))
