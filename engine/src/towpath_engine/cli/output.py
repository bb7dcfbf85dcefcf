"""Standard output: one JSON value with `--json`, else text for people. Errors go to stderr."""

import json
import sys
from collections.abc import Mapping, Sequence


def print_json(value: object) -> None:
    """One line of JSON."""
    print_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def print_line(text: str) -> None:
    """One line. Text that the terminal can't show is escaped instead of ending the command."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


def print_notice(text: str) -> None:
    """One line beside the result, on stderr: what reads standard output does not see it."""
    sys.stderr.write(f"towpath: {text}\n")


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """The columns of the rows, aligned, under a line of titles."""
    cells = [list(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print_line("  ".join(padded).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """`name  value`, aligned, without what is None."""
    shown = {name: value for name, value in fields.items() if value is not None}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        print_line(f"{name:<{width}}  {_cell(value)}")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
