"""docs/command-line.md knows every verb and every exit status."""

import re
from pathlib import Path

from towpath_engine.cli.completion import command_tree
from towpath_engine.cli.exits import EPILOG, Exit

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text()


def test_every_verb_is_on_the_page() -> None:
    missing = [verb for verb in command_tree()[""].verbs if not re.search(rf"`{verb}\b", PAGE)]
    assert missing == []


def test_every_exit_status_is_on_the_page_and_in_the_help() -> None:
    documented = {int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert documented == {int(status) for status in Exit}
    assert {int(number) for number in re.findall(r"\b\d+\b", EPILOG)} == documented
