"""Standard output: JSON with `--json`, else text for people. Errors and notices go to stderr.

With `--json` a verb prints one JSON value in one line, a follower (`watch`, `logs -f`,
`deploy --watch`) and `start-many` one JSON value a line.
"""

import json
import sys
from collections.abc import Collection, Mapping, Sequence

from towpath_engine.cli.table import Layout, field_lines, table_lines
from towpath_engine.cli.terminal import Terminal, harmless, terminal


def print_json(value: object) -> None:
    """One line of JSON."""
    print_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def print_value(value: object) -> None:
    """A user's value: one line of JSON, on a terminal over as many lines as it reads best in."""
    if terminal().interactive:
        print_line(json.dumps(value, ensure_ascii=False, indent=2, default=str))
    else:
        print_json(value)


def print_line(text: str) -> None:
    """One line. Text that the terminal can't show is escaped instead of ending the command."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


def print_notice(text: str) -> None:
    """One line beside the result, on stderr: what reads standard output does not see it."""
    sys.stderr.write(f"towpath: {harmless(text)}\n")
    sys.stderr.flush()


def print_table(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    layout: Layout = Layout(),  # noqa: B008 -- frozen
) -> None:
    """The columns of the rows, aligned, under a line of titles. The layout says what gives way
    where a terminal is too narrow."""
    for line in table_lines(columns, rows, terminal(), layout):
        print_line(line)


def print_fields(fields: Mapping[str, object], *, whole: Collection[str] = ()) -> None:
    """`name  value`, aligned, without what is None; those in `whole` are never cut."""
    for line in field_lines(fields, terminal(), whole=whole):
        print_line(line)


def current_terminal() -> Terminal:
    """What standard output is now, for verbs that write lines of their own."""
    return terminal()
