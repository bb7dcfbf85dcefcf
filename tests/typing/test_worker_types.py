"""The SDK's types, by the strict checker: what it must accept and what it must refuse."""

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MARK = re.compile(r"# error: (\w+)$")

# Rules about unused results and annotations say nothing about the SDK.
STYLE_RULES = {"reportUntypedFunctionDecorator", "reportUnknownVariableType"}


def found(name: str, folder: Path) -> list[tuple[int, str]]:
    """(line, rule) of every error that pyright finds in a file of this folder.

    In a copy with a configuration of its own: the project's leaves the rejected files out.
    """
    config = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": [name]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    (folder / name).write_text((HERE / name).read_text())
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    result = subprocess.run(
        [*command, "-p", str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    diagnostics = json.loads(result.stdout)["generalDiagnostics"]
    return sorted(
        {
            (each["range"]["start"]["line"] + 1, each.get("rule", "syntax"))
            for each in diagnostics
            if each.get("rule") not in STYLE_RULES
        }
    )


def test_correct_programs_are_accepted(tmp_path: Path) -> None:
    assert found("accepted_worker.py", tmp_path) == []


def test_wrong_programs_are_refused_line_by_line(tmp_path: Path) -> None:
    lines = (HERE / "rejected_worker.py").read_text().splitlines()
    expected = [
        (number, match.group(1))
        for number, line in enumerate(lines, start=1)
        if (match := MARK.search(line)) is not None
    ]
    assert len(expected) > 15
    assert found("rejected_worker.py", tmp_path) == expected
