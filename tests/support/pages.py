"""Pages of the documentation, followed to the letter: files are written, commands typed, and what
they print is compared with what the page says they print.

A page's blocks, by the first words behind the fence:

    yaml file=order.yaml        any language with `file=`: the file is written
    console                     `$ command`, `> ` goes on with it; the other lines are its output
    console terminal=worker     the same in another terminal: the command goes on, `^C` ends it
    sql                         run by a superuser of Postgres (`Reader.sql`)
    text                        a picture or a form: nothing to run

In an output `…` stands for anything, a line `…` for any number of lines, and blanks do not count.
A command must succeed, unless the page shows an error (`towpath: …`) as its output.
"""

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.eventually import DEADLINE_SECONDS, eventually_sync
from tests.support.processes import RealProcess

ROOT: Final = Path(__file__).resolve().parents[2]
LANGUAGES_OF_FILES: Final = frozenset({"yaml", "python", "toml", "conf", "ini", "json", "sh", "js"})
_BLOCK: Final = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_LOOKS: Final = re.compile(
    r"towpath (get|list|history|explain|logs|watch|queues|workers|workflows|pauses|output"
    r"|dead-letters list|dead-letters get)|curl|cat|grep"
)
"""Commands that change nothing: typed again until they show what the page says."""


class Block(NamedTuple):
    """One fenced block. `heading` is the title it stands under, `line` where it begins."""

    language: str
    file: str | None
    terminal: str | None
    text: str
    heading: str
    line: int


class Typed(NamedTuple):
    """One command of a console block and the lines that the page shows below it."""

    command: str
    shown: tuple[str, ...]


def read_blocks(page: str) -> list[Block]:
    """All blocks of a page, which is named as from the root of the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    outside = _BLOCK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    headings = [(found.start(), found[2].strip()) for found in _HEADING.finditer(outside)]
    blocks: list[Block] = []
    for found in _BLOCK.finditer(text):
        words = dict(word.split("=", 1) for word in found[2].split() if "=" in word)
        above = [title for start, title in headings if start < found.start()]
        blocks.append(
            Block(
                found[1],
                words.get("file"),
                words.get("terminal"),
                found[3],
                above[-1] if above else "",
                text.count("\n", 0, found.start()) + 1,
            )
        )
    return blocks


def under(blocks: Iterable[Block], heading: str) -> list[Block]:
    """The blocks under a heading; it must have some."""
    found = [block for block in blocks if block.heading == heading]
    assert found, f"no block under {heading!r}"
    return found


def typed(text: str) -> list[Typed]:
    """The commands of a console block."""
    commands: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(([line[2:]], []))
        elif line.startswith("> ") and commands and not commands[-1][1]:
            commands[-1][0].append(line[2:])
        elif line == "^C":
            commands.append((["^C"], []))
        else:
            assert commands, f"output before any command: {line!r}"
            commands[-1][1].append(line)
    return [Typed("\n".join(command), tuple(shown)) for command, shown in commands]


def as_shown(printed: str, shown: tuple[str, ...]) -> bool:
    """Is this what the page shows? Blanks do not count, `…` stands for anything."""
    pattern = ""
    for line in shown:
        words = " ".join(line.split())
        if words == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(words).replace("…", "[^\n]*?") + r"\n"
    lines = [" ".join(line.split()) for line in printed.rstrip().splitlines()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


class Reader:
    """Somebody who follows pages in a folder, with as many terminals as they open.

    `changes` are replaced in everything: the page says the usual port, a test has another.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        changes: Mapping[str, str] | None = None,
        sql: Callable[[str], None] | None = None,
    ) -> None:
        self.folder = folder
        self._environment = dict(environment)
        self._changes = dict(changes or {})
        self._sql = sql
        self._terminals: dict[str, RealProcess] = {}
        self._programs = folder / ".bin"
        self._programs.mkdir(exist_ok=True)
        self._program("towpath", f'exec {shlex.quote(sys.executable)} -m towpath_engine "$@"')
        self._program("python", f'exec {shlex.quote(sys.executable)} "$@"')
        self._state = self._programs / "state"
        self._state.touch()

    def _program(self, name: str, line: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def program(self, name: str, path: Path) -> None:
        """Give the reader a program that the page expects to be installed."""
        self._program(name, f'exec {shlex.quote(str(path))} "$@"')

    def follow(self, blocks: Iterable[Block]) -> None:
        """Do what the blocks say, in order. Fails where something else comes out."""
        for block in blocks:
            if block.file is not None:
                assert block.language in LANGUAGES_OF_FILES, block
                (self.folder / block.file).write_text(self.changed(block.text), encoding="utf-8")
            elif block.language == "console":
                commands = typed(self.changed(block.text))
                for one, following in zip(commands, [*commands[1:], None], strict=True):
                    self._type(one, block, insisting=following is not None and following == one)
            elif block.language == "sql":
                assert self._sql is not None
                self._sql(self.changed(block.text))
            else:
                assert block.language == "text", f"line {block.line}: nobody runs this block"

    def run(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Type a command that no page says; what it printed, errors between the rest."""
        script = f'. "$STATE"\nset -a\n{command}\n__status=$?\nexport -p > "$STATE"\nexit $__status'
        return subprocess.run(
            ["bash", "-c", script],
            env=self._variables(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )

    def open(self, terminal: str, command: str) -> None:
        """Type a command that no page says in another terminal, where it goes on."""
        self._in_terminal(terminal, Typed(self.changed(command), ()), command)

    def terminal(self, name: str) -> RealProcess:
        """What runs in the terminal of that name."""
        return self._terminals[name]

    def close(self) -> None:
        """Close all terminals."""
        for process in self._terminals.values():
            process.close()
        self._terminals.clear()

    def changed(self, text: str) -> str:
        """The text with what is different here."""
        for usual, here in self._changes.items():
            text = text.replace(usual, here)
        return text

    def _variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if "TOWPATH" not in name}
        path = f"{self._programs}{os.pathsep}{kept.get('PATH', '')}"
        own = {"PATH": path, "STATE": str(self._state), "NO_COLOR": "1"}
        return {**kept, **self._environment, **own}

    def _type(self, one: Typed, block: Block, *, insisting: bool = False) -> None:
        where = f"line {block.line}, `{one.command}`"
        if block.terminal is not None:
            if one.command == "^C":
                self._interrupt(block.terminal, insisting=insisting)
            else:
                self._in_terminal(block.terminal, one, where)
            return
        deadline = time.monotonic() + DEADLINE_SECONDS
        again = bool(_LOOKS.match(one.command)) and bool(one.shown)
        while True:
            done = self.run(one.command)
            may_fail = bool(one.shown) and one.shown[0].startswith("towpath: ")
            if (done.returncode == 0 or may_fail) and (
                not one.shown or as_shown(done.stdout, one.shown)
            ):
                return
            if not again or time.monotonic() > deadline:
                wanted = "\n".join(one.shown)
                raise AssertionError(
                    f"{where}\nstatus {done.returncode}, printed:\n{done.stdout}\nnot:\n{wanted}"
                )

    def _interrupt(self, name: str, *, insisting: bool) -> None:
        """^C, once or, `insisting`, again and again until the program has ended."""
        process = self._terminals[name]
        process.popen.send_signal(signal.SIGINT)

        def ended() -> bool:
            process.popen.send_signal(signal.SIGINT)
            return not process.running()

        if insisting:
            eventually_sync(ended)
        process.wait()

    def _in_terminal(self, name: str, one: Typed, where: str) -> None:
        before = self._terminals.get(name)
        if before is not None:
            assert not before.running(), f"{where}: that terminal is in use"
            before.close()
        script = f'. "$STATE"\nexec {one.command}'
        process = RealProcess(
            ["bash", "-c", script], environment=self._variables(), working_dir=self.folder
        )
        self._terminals[name] = process
        if not one.shown:
            return

        def seen() -> bool:
            printed = process.errors() + process.output()
            assert process.running(), f"{where} ended: {printed}"
            # More may follow: what the page shows is how it begins.
            return as_shown(printed, (*one.shown, "…"))

        eventually_sync(seen)
