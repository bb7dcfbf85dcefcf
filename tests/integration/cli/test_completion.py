"""The completion scripts: bash's is sourced and asked, all have every verb and option."""

import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import succeed
from towpath_engine.cli.completion import command_tree

ASK = """
source "$1"; shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_towpath
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "towpath.bash"
    file.write_text(succeed({}, ["completion", "bash"]))
    return file


def completed(script: Path, *words: str) -> list[str]:
    """What a TAB after these words offers."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", ASK, "ask", str(script), "towpath", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sta"], ["start", "start-many"]),
        (["dead-letters", ""], ["list", "get", "discard", "replay"]),
        (["pause", "q"], ["queue"]),
        (["pause", "queue", "--re"], ["--reason"]),
        (["start", "order", "--on"], ["--on-conflict"]),
        (["start", "order", "--on-conflict", ""], ["existing", "reject", "replace"]),
        (["start", "order", "--priority", "n"], ["normal"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        # A value of an option, a file: the shell's own completion takes over.
        (["start", "order", "--key", ""], []),
        (["deploy", "ord"], []),
    ],
)
def test_a_tab_offers_what_may_follow(script: Path, words: list[str], offered: list[str]) -> None:
    assert completed(script, *words) == offered


def test_a_tab_at_the_start_offers_every_verb(script: Path) -> None:
    assert completed(script, "") == list(command_tree()[""].verbs)


def test_the_script_registers_itself(script: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"source '{script}'; complete -p towpath"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "complete -o default -F _towpath towpath\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_option_and_choice_is_in_every_script(shell: str) -> None:
    script = succeed({}, ["completion", shell])
    assert "'" * 3 not in script
    for path, words in command_tree().items():
        names = [path.rpartition(" ")[2], *words.verbs, *words.options, *words.places]
        for name in [*names, *(word for found in words.choices.values() for word in found)]:
            assert name.lstrip("-") in script, (path, name)


def test_a_script_can_be_had_in_json() -> None:
    found = succeed({}, ["completion", "bash", "--json"]).json()
    assert found["shell"] == "bash"
    assert found["script"].rstrip("\n") + "\n" == succeed({}, ["completion", "bash"])
