"""Rules that no other tool holds us to: sizes, words, places."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools.counts import count
from towpath_engine.settings import Settings

ROOT = Path(__file__).resolve().parents[2]

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
# This file spells what it forbids.
SELF = "tests/tidy/test_tidy.py"

# Glossary words are used for one thing each; these are what they are not called. Only words that
# have no other honest use here.
BANNED_WORDS = {
    "janitor": "reaper",
    "idempotency id": "idempotency key",
    "correlation id": "key",
    "retry number": "attempt",
    "dlq": "dead letter",
    "zombie report": "stale report",
    "graceful shutdown": "drain",
    "node type": "step kind",
    "whitelist": "allow list",
    "blacklist": "deny list",
}
LOCK_FILES = re.compile(
    r"(^|/)(uv\.lock|poetry\.lock|Pipfile\.lock|pdm\.lock|package-lock\.json|yarn\.lock"
    r"|pnpm-lock\.yaml|npm-shrinkwrap\.json)$"
)
# Registries and mirrors: constraints name versions, never where they come from.
REGISTRY_HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.(npmjs|yarnpkg)|npmjs\.com|artifactory|--index-url"
    r"|--extra-index|index-url ?=|//[a-z0-9.-]*mirror[a-z0-9.-]*/",
    re.IGNORECASE,
)
MACHINE_PATHS = re.compile(r"(?<![\w.}])/(work|root|home/[a-z]+|Users/[A-Za-z]+)/(?![*<])")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# Documents that a reader of this repository does not have.
OUTSIDE = re.compile(r"\b(DESIGN|SEMANTICS|WIRE|STYLE)\b|\bruling \d|\bnats\.md")
BANNER = re.compile(r"^\s*(#|//|--) ?[-=*#]{2}")
# Only these may give up on types: they wrap libraries that have none.
UNTYPED_PLACES = re.compile(
    r"towpath_engine/(store|bus)/"
    # JSON values of the seams, which have no narrower type.
    r"|towpath_engine/core/(definition|effects|model|expressions/interface)\.py$"
    r"|towpath_worker/transport\.py$|^tests/|^deploy/|^tools/"
)
MEASURED = re.compile(r"\.(py|mjs|js|sh|sql)$")


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).exists())


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_bytes().decode(errors="replace")


def python_files(*prefixes: str) -> list[str]:
    return [
        name
        for name in tracked()
        if name.endswith(".py") and (not prefixes or name.startswith(prefixes))
    ]


def require_none(faults: list[str]) -> None:
    assert not faults, "\n".join(faults)


def found_lines(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name in names
        if name != SELF
        for number, line in enumerate(text_of(name).splitlines(), start=1)
        if pattern.search(line)
    ]


def functions(name: str) -> Iterator[tuple[str, int]]:
    """(name, lines) of every function, decorators not counted."""
    for node in ast.walk(ast.parse(text_of(name))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{name}: {function} has {lines} lines"
        for name in python_files()
        for function, lines in functions(name)
        if lines > FUNCTION_LINES_MAX
    ]
    require_none(long)


def test_no_file_is_longer_than_500_lines() -> None:
    long = [
        f"{name}: {lines} lines"
        for name in tracked()
        if MEASURED.search(name) and (lines := len(text_of(name).splitlines())) > FILE_LINES_MAX
    ]
    require_none(long)


def test_every_statement_file_is_used_and_every_used_one_exists() -> None:
    files = {
        Path(name).stem
        for name in tracked()
        if re.search(r"towpath_engine/store/sql/.*\.sql$", name)
    }
    store = "".join(text_of(name) for name in python_files("engine/src/towpath_engine/store/"))
    literals = {
        node.value
        for name in python_files("engine/src/towpath_engine/store/")
        for node in ast.walk(ast.parse(text_of(name)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert files - literals == set(), "these are used nowhere"
    named = set(re.findall(r"""statement\(\s*["']([a-z_0-9]+)["']""", store))
    assert named - files == set(), "these do not exist"


def test_every_setting_is_read_somewhere() -> None:
    source = "".join(
        text_of(name)
        for name in python_files("engine/src/")
        if not name.endswith("towpath_engine/settings.py")
    )
    unread = {
        name for name in Settings.__struct_fields__ if not re.search(rf"settings\.{name}\b", source)
    }
    assert unread == set()


def test_the_glossary_words_are_used() -> None:
    banned = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in BANNED_WORDS), re.IGNORECASE)
    require_none(found_lines(banned, list(tracked())))


def test_tests_never_sleep() -> None:
    # `tests/support` polls; a test says what it waits for by calling `eventually`.
    sleeping = re.compile(r"\b(asyncio|time)\.sleep\((?!0\))")
    names = [name for name in python_files("tests/") if Path(name).name.startswith("test_")]
    require_none(found_lines(sleeping, names))


def test_no_registry_is_named() -> None:
    require_none(found_lines(REGISTRY_HOSTS, list(tracked())))


def test_no_path_of_a_particular_machine_is_named() -> None:
    require_none(found_lines(MACHINE_PATHS, list(tracked())))


def test_no_lock_file_is_tracked() -> None:
    assert [name for name in tracked() if LOCK_FILES.search(name)] == []


def test_nothing_is_marked_unfinished() -> None:
    require_none(found_lines(UNFINISHED, list(tracked())))


def test_no_document_outside_the_repository_is_referred_to() -> None:
    require_none(found_lines(OUTSIDE, list(tracked())))


def test_comments_are_sentences_and_no_banners() -> None:
    require_none(found_lines(BANNER, [name for name in tracked() if MEASURED.search(name)]))


def test_types_are_given_up_only_at_the_walls() -> None:
    careless = [
        f"{name}: Any {counts['Any']}, cast {counts['cast']}"
        for name in python_files()
        if not UNTYPED_PLACES.search(name)
        and ((counts := count(text_of(name)))["Any"] or counts["cast"])
    ]
    require_none(careless)


def test_every_noqa_and_ignore_has_its_rule_and_its_reason() -> None:
    bare = re.compile(r"#\s*noqa(?!: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)* --? \w)|#\s*type:\s*ignore")
    require_none(found_lines(bare, python_files()))


def test_a_module_opens_with_its_purpose() -> None:
    silent = [
        name
        for name in python_files("engine/src", "protocol/src", "workers/src", "tools/")
        if ast.get_docstring(ast.parse(text_of(name))) is None
    ]
    require_none(silent)


def test_no_test_is_skipped() -> None:
    skipped = {
        name: counts
        for name in python_files("tests/")
        if (counts := count(text_of(name)))["skip"] or counts["xfail"]
    }
    assert skipped == {}


@pytest.mark.parametrize("name", ["utils.py", "helpers.py", "misc.py", "common.py"])
def test_no_module_is_a_drawer(name: str) -> None:
    assert [path for path in tracked() if Path(path).name == name] == []


def test_the_counter_counts() -> None:
    source = (
        "from typing import Any, cast\n"
        "x: Any = cast(int, y)  # noqa: X1 - z\n"
        "a = b.skip(c)  # type: ignore[x]\n"
        "s = 'Any # noqa'\n"
    )
    counts = count(source)
    assert counts["Any"] == counts["cast"] == counts["noqa"] == counts["type: ignore"] == 1
    assert counts["skip"] == 1
