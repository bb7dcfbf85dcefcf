"""Prints how often the code steps around its own rules. Numbers that grow are worth a look."""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

# In comments.
_MARKS = {
    "type: ignore": re.compile(r"#\s*type:\s*ignore"),
    "pyright: ignore": re.compile(r"#\s*pyright:\s*ignore"),
    "noqa": re.compile(r"#\s*noqa"),
    "fmt: off/skip": re.compile(r"#\s*fmt:\s*(off|skip)"),
}
# Names, and attributes of these names.
_NAMES = {"Any": "Any", "cast": "cast"}
_SKIPS = {"skip": "skip", "skipif": "skip", "importorskip": "skip", "xfail": "xfail"}


def main() -> int:
    """Count over all Python files that git knows."""
    counts = dict.fromkeys([*_MARKS, *_NAMES, "skip", "xfail"], 0)
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (path := _ROOT / name).exists():
            for kind, number in count(path.read_text()).items():
                counts[kind] += number
    print("   ".join(f"{kind} {number}" for kind, number in counts.items()))
    return 0


def count(source: str) -> dict[str, int]:
    """Kind → number of uses in a Python source; imports of `Any` and `cast` do not count."""
    counts = dict.fromkeys([*_MARKS, *_NAMES, "skip", "xfail"], 0)
    importing = False
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for kind, pattern in _MARKS.items():
                counts[kind] += bool(pattern.match(token.string))
        elif token.type == tokenize.NEWLINE:
            importing = False
        elif token.type == tokenize.NAME:
            importing = importing or token.string in {"import", "from"}
            if token.string in _NAMES and not importing:
                counts[_NAMES[token.string]] += 1
            if token.string in _SKIPS and previous == ".":
                counts[_SKIPS[token.string]] += 1
        previous = token.string
    return counts


if __name__ == "__main__":
    sys.exit(main())
