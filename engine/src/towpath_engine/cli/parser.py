"""The parser behind the verbs: mistakes in one sentence with the fix, and the types of options.

Abbreviated options are refused, since scripts must survive new ones.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, TypedDict, Unpack

from towpath_engine.cli.exits import EPILOG, Exit

_UNKNOWN_CHOICE: Final = re.compile(
    r"argument (?P<what>[^:]+): invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)"
)


class CommandParser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where the help is. `verbs` are the commands below."""

    def __init__(self, **options: Unpack["ParserOptions"]) -> None:
        super().__init__(**options)
        self.verbs: dict[str, CommandParser] = {}

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """Its options and places."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        """Tell the mistake and end with the status for wrong usage."""
        sys.stderr.write(f"{self.prog}: {_in_words(message)}: see `{self.prog} --help`\n")
        sys.exit(Exit.USAGE)


class ParserOptions(TypedDict, total=False):
    """What argparse is given for a parser."""

    prog: str
    description: str
    epilog: str
    allow_abbrev: bool


class Verbs:
    """The commands below one, which is then no command by itself."""

    def __init__(self, parent: CommandParser, *, dest: str, metavar: str) -> None:
        self._parent = parent
        self._inner = parent.add_subparsers(dest=dest, required=True, metavar=metavar)

    def add(self, name: str, text: str) -> CommandParser:
        """A command with its help."""
        child = self._inner.add_parser(
            name, help=text, description=text, epilog=EPILOG, allow_abbrev=False
        )
        self._parent.verbs[name] = child
        return child


def add_verb(verbs: Verbs, name: str, text: str) -> CommandParser:
    """A verb that needs no engine, with the options that every verb has."""
    parser = verbs.add(name, text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file with settings (default: TOWPATH_CONFIG)"
    )
    return parser


def add_client_verb(verbs: Verbs, name: str, text: str) -> CommandParser:
    """A verb that asks an engine."""
    parser = add_verb(verbs, name, text)
    parser.add_argument("--nats-url", metavar="URL", help="where NATS is (TOWPATH_NATS_URL)")
    parser.add_argument("--prefix", help="the installation's subject prefix (TOWPATH_PREFIX)")
    return parser


def add_group(verbs: Verbs, name: str, text: str) -> Verbs:
    """A verb that has verbs of its own, as `pause queue`."""
    return Verbs(verbs.add(name, text), dest="subcommand", metavar="WHAT")


def add_target(parser: argparse.ArgumentParser) -> None:
    """The run that a verb is about."""
    parser.add_argument("run_id", metavar="RUN", help="run id, or WORKFLOW/KEY")


def add_who_and_why(parser: argparse.ArgumentParser) -> None:
    """What the history keeps of an operation."""
    parser.add_argument("--by", metavar="WHO", help="kept in the history (default: USER@HOST)")
    parser.add_argument("--reason", metavar="WHY", help="kept in the history")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """How long to wait for a result."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for the result (default: 60)",
    )


def port(text: str) -> int:
    """A port, 0 for any."""
    number = _whole(text)
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port, which is between 0 and 65535")
    return number


def count(text: str) -> int:
    """A number from 1."""
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def amount(text: str) -> int:
    """A number from 0."""
    number = _whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def seconds(text: str) -> float:
    """A time to wait, up to a year."""
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 < number < 365 * 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds to wait")
    return number


def instant(text: str) -> str:
    """An instant as RFC 3339, from one, a date (midnight UTC), or an age such as `2h`."""
    from towpath_engine.core.durations import BadDuration, parse_duration
    from towpath_protocol.errors import ProtocolError
    from towpath_protocol.times import format_instant, parse_instant

    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return format_instant(datetime.fromisoformat(text).replace(tzinfo=UTC))
        if re.fullmatch(r"(\d+(ms|[dhms]))+", text):
            age = timedelta(milliseconds=parse_duration(text))
            return format_instant(datetime.now(UTC) - age)
        return format_instant(parse_instant(text))
    except (ProtocolError, BadDuration, ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no instant: give 2026-01-31T12:00:00Z, 2026-01-31, or an age as 2h"
        ) from error


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _in_words(message: str) -> str:
    """argparse's sentence; a verb or value that is not known gets its nearest neighbour."""
    found = _UNKNOWN_CHOICE.fullmatch(message)
    if found is None:
        return message
    known = re.findall(r"'([^']*)'", found["known"]) or found["known"].split(", ")
    near = difflib.get_close_matches(found["given"], known, n=1)
    is_command = found["what"] in ("COMMAND", "WHAT")
    listed = "" if is_command and len(known) > 9 else f": use {', '.join(known)}"
    advice = f", did you mean {near[0]!r}?" if near else listed
    what = "command" if is_command else found["what"]
    return f"there is no {what} {found['given']!r}{advice}"
