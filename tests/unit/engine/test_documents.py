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
        ("a: no", {"a": "no"}),
        ("on: yes", {"on": "yes"}),
        ("a: true\nb: False", {"a": True, "b": False}),
        ("a: ~\nb:\nc: null", {"a": None, "b": None, "c": None}),
        ("a: 2026-11-29", {"a": "2026-11-29"}),
        ("a: 2026-11-29T00:00:00Z", {"a": "2026-11-29T00:00:00Z"}),
        ("a: 12:30:00", {"a": "12:30:00"}),
        ("a: 010\nb: 0o10\nc: 0x1F\nd: -3", {"a": 10, "b": 8, "c": 31, "d": -3}),
        ("a: 1.50\nb: .5\nc: 1e3\nd: 1.", {"a": 1.5, "b": 0.5, "c": 1000.0, "d": 1.0}),
        ("a: 9007199254740993", {"a": 9007199254740993}),
        ("a: '5'\nb: \"true\"\nc: |\n  x\n", {"a": "5", "b": "true", "c": "x\n"}),
        ("a: 1_000\nb: 0b1\nc: +.5.5\nd: v1", {"a": "1_000", "b": "0b1", "c": "+.5.5", "d": "v1"}),
        ("- ü\n- [1, {b: c}]", ["ü", [1, {"b": "c"}]]),
        ("\ufeffa: 1", {"a": 1}),
        ("--- \na: 1\n...\n", {"a": 1}),
        ('{"a": [1, 2.5, null, "x\\u00e9"]}', {"a": [1, 2.5, None, "xé"]}),
        ("a: <<\n<<: {b: 1}", {"a": "<<", "<<": {"b": 1}}),
    ],
)
def test_yaml_means_what_json_can_say(text: str, value: object) -> None:
    read = parse_yaml(text.encode(), "order.yaml")
    assert read == value
    assert repr(read) == repr(value), "the types, too: True is not 1, and 1.0 not 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "order.yaml:3: duplicate key 'a'"),
        ("a:\n  1: x", "order.yaml:2: keys must be text, quote this one"),
        ("true: x", "order.yaml:1: keys must be text, quote this one"),
        ("[a, b]: x", "order.yaml:1: keys must be text, quote this one"),
        ("a: &x 1\nb: *x", "anchors and aliases are not supported"),
        ("a: &x [*x]", "anchors and aliases are not supported"),
        ("a: .inf", "order.yaml:1: .inf is not a number of JSON"),
        ("a: .nan", "order.yaml:1: .nan is not a number of JSON"),
        ("\na: 1e999", "order.yaml:2: 1e999 is not a number of JSON"),
        ("a: !!python/object/apply:os.system [ls]", "the tag tag:yaml.org,2002:python"),
        ("a: !secret x", "order.yaml:1: the tag !secret is not supported"),
        ("a: !!int '5'", "is not supported"),
        ("a: [1, 2", "order.yaml:1: not YAML"),
        ("a: b: c", "order.yaml:1: not YAML: mapping values are not allowed here"),
        ("a: 1\n\tb: 2", "order.yaml:2: not YAML"),
        ("a: 1\n---\nb: 2", "order.yaml:2: not YAML"),
        ("a: @x", "order.yaml:1: not YAML"),
        ("", "order.yaml: the document is empty"),
        ("# nothing", "order.yaml: the document is empty"),
        (b"a: \xff", "order.yaml: not UTF-8 at byte 3"),
        ("a: \x00", "order.yaml: not YAML"),
        ("[" * 5_000 + "]" * 5_000, "order.yaml: nested too deeply"),
        ("a: " + "9" * 5_000, "order.yaml:1: Exceeds the limit"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_line(text: str | bytes, message: str) -> None:
    said = refusal(text)
    assert message in said
    assert said.startswith("order.yaml")
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
