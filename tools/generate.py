"""Writes the files that are derived from code: JSON Schemas, AsyncAPI, the table
of error codes, the state machines, the operations, the settings.

`generate.py` writes them, `generate.py --check` names the stale ones and exits with 1. A generator
is a function that returns relative path → content; the list of them is GENERATORS.
"""

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from towpath_engine.core.definition_schema import DEFINITION_SCHEMA
from towpath_protocol.catalogue import MESSAGES
from towpath_protocol.errors import ERRORS
from towpath_protocol.reports import REPORT_TYPES

ROOT: Final = Path(__file__).parents[1]
SCHEMAS: Final = "protocol/schemas/v1"

Generator = Callable[[], Mapping[str, str]]


def _load(name: str) -> object:
    """A module beside this file, by path: the folder is no package and not always on the path."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"towpath_tools_{name}", path)
    assert spec is not None, f"{path} can be loaded"
    assert spec.loader is not None, f"{path} can be loaded"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def schema_of(name: str) -> dict[str, object]:
    """The JSON Schema (2020-12) of a message of the catalogue."""
    shape = MESSAGES[name]
    schema = msgspec.json.schema(shape)
    if shape in REPORT_TYPES.values():
        # The subject says what a report is, so that the smallest body may leave `type` out.
        definition = schema["$defs"][shape.__name__]
        definition["required"] = [field for field in definition["required"] if field != "type"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:towpath:v1:{name}",
        **schema,
    }


def schemas() -> Mapping[str, str]:
    """One schema file per message."""
    return {
        f"{SCHEMAS}/{name}.json": json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n"
        for name in MESSAGES
    }


def asyncapi() -> Mapping[str, str]:
    """The AsyncAPI 3 document."""
    module = _load("asyncapi")
    return {"protocol/asyncapi.yaml": str(vars(module)["asyncapi_yaml"]())}


def state_machines() -> Mapping[str, str]:
    """The diagrams of the transition tables, once there is a module that draws them."""
    if not Path(__file__).with_name("state_machines.py").exists():
        return {}
    module = _load("state_machines")
    return {"docs/state-machines.md": str(vars(module)["state_machines_markdown"]())}


def operations_table() -> Mapping[str, str]:
    """What every operation does in every status."""
    module = _load("operations_table")
    return {"docs/operations-table.md": str(vars(module)["operations_markdown"]())}


def settings_page() -> Mapping[str, str]:
    """The reference of the engine's settings."""
    module = _load("settings_page")
    return {"docs/settings.md": str(vars(module)["settings_markdown"]())}


def definition_schema() -> Mapping[str, str]:
    """The JSON Schema of a workflow definition, for editors."""
    text = json.dumps(DEFINITION_SCHEMA, indent=2, ensure_ascii=False)
    return {"docs/definition.schema.json": f"{text}\n"}


_CODES: Final = re.compile(r"(<!-- codes: begin -->\n).*(<!-- codes: end -->)", re.DOTALL)


def error_codes() -> Mapping[str, str]:
    """PROTOCOL.md with its table of error codes, the rest of the page as it stands."""
    path = "protocol/PROTOCOL.md"
    rows = [f"| `{code}` | {facts.status} | {facts.meaning} |" for code, facts in ERRORS.items()]
    table = "\n".join(["| code | status | meaning |", "|---|---|---|", *rows])
    page = (ROOT / path).read_text(encoding="utf-8")
    return {path: _CODES.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)}


GENERATORS: Final[tuple[Generator, ...]] = (
    schemas,
    asyncapi,
    error_codes,
    state_machines,
    operations_table,
    definition_schema,
    settings_page,
)


def generated() -> dict[str, str]:
    """Everything that is derived: path relative to the root → content."""
    files: dict[str, str] = {}
    for generator in GENERATORS:
        files.update(generator())
    return files


def stale(root: Path) -> list[str]:
    """Paths under `root` that differ from what would be written, are missing, or are left over."""
    wanted = generated()
    differing = [
        path
        for path, content in wanted.items()
        if not (root / path).exists() or (root / path).read_text(encoding="utf-8") != content
    ]
    present = {path.relative_to(root).as_posix() for path in (root / SCHEMAS).glob("*.json")}
    return sorted({*differing, *(present - wanted.keys())})


def write(root: Path) -> list[str]:
    """Bring `root` up to date; returns the paths that changed."""
    changed = stale(root)
    wanted = generated()
    for path in changed:
        if path not in wanted:
            (root / path).unlink()
            continue
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(wanted[path], encoding="utf-8")
    return changed


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args()
    root: Path = options.root
    if not options.check:
        for path in write(root):
            print(f"wrote {path}")
        return 0
    found = stale(root)
    for path in found:
        print(f"stale: {path} (run `make generate`)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
