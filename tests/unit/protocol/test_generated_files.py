"""Schemas and AsyncAPI are derived from the structs; these tests say that they are fresh and
whole."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeGuard

import jsonschema_rs
import pytest
import yaml

from towpath_protocol.catalogue import MESSAGES

ROOT = Path(__file__).parents[3]
PROTOCOL = ROOT / "protocol"


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/generate.py"), "--check", "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("protocol/schemas", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("protocol/asyncapi.yaml", "protocol/PROTOCOL.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_committed_files_are_what_the_code_generates() -> None:
    result = check(ROOT)
    assert (result.returncode, result.stdout) == (0, "")


def test_changed_missing_and_left_over_files_are_named(copy: Path) -> None:
    schemas = copy / "protocol/schemas/v1"
    (schemas / "step.completed.json").write_text("{}")
    (schemas / "step.failed.json").unlink()
    (schemas / "step.forgotten.json").write_text("{}")
    result = check(copy)
    assert result.returncode == 1
    assert [line.split()[1] for line in result.stdout.splitlines()] == [
        "protocol/schemas/v1/step.completed.json",
        "protocol/schemas/v1/step.failed.json",
        "protocol/schemas/v1/step.forgotten.json",
    ]


@pytest.mark.parametrize("name", MESSAGES)
def test_a_golden_message_satisfies_its_schema_and_another_does_not(name: str) -> None:
    schema = json.loads((PROTOCOL / f"schemas/v1/{name}.json").read_text())
    validator = jsonschema_rs.Draft202012Validator(schema)
    validator.validate(json.loads((PROTOCOL / f"golden/v1/{name}.json").read_text()))
    assert not validator.is_valid([])


def test_the_schema_of_a_report_accepts_the_smallest_body() -> None:
    schema = json.loads((PROTOCOL / "schemas/v1/step.completed.json").read_text())
    assert jsonschema_rs.Draft202012Validator(schema).is_valid({"output": 1})


def is_node(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def read_asyncapi() -> dict[str, Any]:
    return yaml.safe_load((PROTOCOL / "asyncapi.yaml").read_text())


def resolve(document: dict[str, Any], reference: str) -> dict[str, object]:
    found: object = document
    for part in reference.removeprefix("#/").split("/"):
        assert is_node(found), reference
        assert part in found, reference
        found = found[part]
    assert is_node(found), reference
    return found


def references(node: object) -> list[str]:
    if not is_node(node):
        return []
    own = [str(node["$ref"])] if "$ref" in node else []
    return own + [reference for value in node.values() for reference in references(value)]


def test_the_asyncapi_document_is_whole() -> None:
    document = read_asyncapi()
    assert document["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= document["info"].keys()
    found = references(document)
    assert found
    for reference in found:
        if reference.startswith("#/"):
            resolve(document, reference)
        else:
            assert (PROTOCOL / reference).is_file(), reference


def test_every_channel_is_used_and_declares_its_parameters() -> None:
    document = read_asyncapi()
    used: set[str] = set()
    for operation in document["operations"].values():
        assert operation["action"] in {"send", "receive"}
        used.add(operation["channel"]["$ref"].removeprefix("#/channels/"))
        if "reply" in operation:
            used.add(operation["reply"]["channel"]["$ref"].removeprefix("#/channels/"))
    assert used == document["channels"].keys()
    for channel in document["channels"].values():
        named = {part[1:-1] for part in (channel["address"] or "").split(".") if part[:1] == "{"}
        assert named == channel.get("parameters", {}).keys()
        assert channel["messages"]


def test_every_message_of_the_catalogue_is_in_a_channel() -> None:
    document = read_asyncapi()
    carried = {
        resolve(document, reference["$ref"])["name"]
        for channel in document["channels"].values()
        for reference in channel["messages"].values()
    }
    assert carried == {*MESSAGES, "user.value"}
