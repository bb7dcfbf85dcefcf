"""Tables, colours and harmless text of the command line."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from towpath_engine.cli.table import Layout, cell, field_lines, table_lines
from towpath_engine.cli.terminal import (
    LINES_MAX,
    Terminal,
    cut,
    harmless,
    terminal,
    width_of,
    wrapped,
)
from towpath_engine.cli.views import age_of
from towpath_protocol.times import format_instant

PIPE = Terminal()
PLAIN = Terminal(width=60)
COLOURED = Terminal(width=60, colours=True)
RUN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


class FakeStream:
    """A standard output that is a terminal, or is none."""

    def __init__(self, *, tty: bool) -> None:
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("tty", "environ", "colours"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {}, True),
        (True, {"TERM": "dumb"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_colours_need_a_terminal_that_may_have_them(
    tty: bool, environ: dict[str, str], colours: bool
) -> None:
    found = terminal(FakeStream(tty=tty), environ)
    assert found.colours is colours
    assert found.interactive is tty


def test_in_a_pipe_nothing_is_cut_or_coloured() -> None:
    rows = [{"run_id": RUN_ID, "status": "failed", "error": "x" * 300}]
    title, line = table_lines(("run_id", "status", "error"), rows, PIPE)
    assert title.split() == ["run_id", "status", "error"]
    assert line == f"{RUN_ID}  failed  {'x' * 300}"


def test_on_a_terminal_the_widest_column_gives_and_ids_stay_whole() -> None:
    rows = [
        {"run_id": RUN_ID, "status": "failed", "error": "no luck " * 40, "key": "k" * 30},
        {"run_id": RUN_ID, "status": "completed", "error": None, "key": "k"},
    ]
    lines = table_lines(("run_id", "status", "key", "error"), rows, Terminal(width=80))
    assert max(width_of(line) for line in lines) <= 80
    assert all(RUN_ID in line for line in lines[1:])
    assert lines[1].endswith("…")
    assert "completed" in lines[2]


@pytest.mark.parametrize("width", [120, 80, 60, 40, 20])
def test_a_table_never_is_wider_than_the_terminal(width: int) -> None:
    columns = ("run_id", "workflow", "nobody_pulls_since", "status", "error")
    row = dict.fromkeys(columns, "word " * 30) | {"run_id": RUN_ID}
    lines = table_lines(columns, [row], Terminal(width=width))
    assert max(width_of(line) for line in lines) <= width


LAYOUT = Layout(below=("cause", "details"), spare=("from",))
HISTORY = ("seq", "what", "from", "cause", "details")


def test_a_wide_table_keeps_its_columns_in_one_line_where_they_fit() -> None:
    row = {"seq": 1, "what": "run-started", "from": "pending", "cause": "start", "details": "a=1"}
    lines = table_lines(HISTORY, [row], Terminal(width=60), LAYOUT)
    assert lines[0].split() == list(HISTORY)
    assert lines[1].split() == ["1", "run-started", "pending", "start", "a=1"]


def test_what_does_not_fit_stands_whole_under_its_row() -> None:
    cause = "report step-failed by worker-12-abc"
    details = "error=(Declined: the bank says no to this amount of money)"
    rows = [
        {"seq": 1, "what": "run-started", "from": "pending", "cause": "start", "details": None},
        {"seq": 2, "what": "step-failed", "from": "running", "cause": cause, "details": details},
    ]
    lines = table_lines(HISTORY, rows, PLAIN, LAYOUT)
    assert lines[0] == "seq  what         from     cause, details"
    assert lines[1] == "1    run-started  pending  start"
    assert lines[2] == "2    step-failed  running"
    assert " ".join(line.strip() for line in lines[3:]) == f"{cause}  {details}"
    assert max(width_of(line) for line in lines) <= 60


def test_a_spare_column_is_left_out_before_others_are_cut() -> None:
    row = {"seq": 1, "what": "w" * 30, "from": "f" * 30, "cause": "start"}
    title, line = table_lines(("seq", "what", "from", "cause"), [row], PLAIN, LAYOUT)
    assert title.split() == ["seq", "what", "cause"]
    assert line.split() == ["1", "w" * 30, "start"]


def test_an_instant_or_an_id_under_its_row_is_named() -> None:
    layout = Layout(below=("oldest_ready_at", "nobody_pulls_since"))
    row = {"queue": "q" * 40, "oldest_ready_at": "then", "nobody_pulls_since": "now"}
    lines = table_lines(("queue", "oldest_ready_at", "nobody_pulls_since"), [row], PLAIN, layout)
    assert lines[2] == "     oldest ready at then  nobody pulls since now"


@pytest.mark.parametrize("width", [20, 40, 79])
def test_no_line_is_wider_than_the_terminal_whatever_stands_below(width: int) -> None:
    row = dict.fromkeys(HISTORY, "日本 word " * 40) | {"cause": "x" * 5_000}
    for line in table_lines(HISTORY, [row], Terminal(width=width, colours=False), LAYOUT):
        assert width_of(line) <= width


def test_a_text_is_wrapped_between_words_and_cut_where_it_is_too_long() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("abcdefgh ij", 4) == ["abc", "def", "gh", "ij"]
    assert wrapped("", 5) == [""]
    lines = wrapped("word " * 1_000, 20)
    assert len(lines) == LINES_MAX
    assert lines[-1].endswith("…")


def test_columns_line_up_whatever_characters_they_hold() -> None:
    rows = [{"key": "日本", "status": "running"}, {"key": "abcd", "status": "running"}]
    lines = table_lines(("key", "status"), rows, PLAIN)
    assert [width_of(line[: line.index("running")]) for line in lines[1:]] == [6, 6]
    assert lines[1] == "日本  running"


def test_a_status_has_its_colour_and_the_rest_lines_up_as_without() -> None:
    rows = [{"run_id": "a", "status": "failed"}, {"run_id": "b", "status": "completed"}]
    _, failed, completed = table_lines(("run_id", "status"), rows, COLOURED)
    assert failed == "a       \x1b[31mfailed\x1b[0m"
    assert completed == "b       \x1b[32mcompleted\x1b[0m"


def test_an_instant_of_today_has_no_date_for_people() -> None:
    today = Terminal(width=60, today="2026-11-29")
    assert cell("2026-11-29T23:44:57.922107Z", today) == "23:44:57Z"
    assert cell("until=2026-11-30T00:00:01.000000Z", today) == "until=2026-11-30 00:00:01Z"


def test_an_instant_is_short_for_people_and_whole_for_programs() -> None:
    instant = "2026-11-29T23:44:57.922107Z"
    assert cell(instant, PLAIN) == "2026-11-29 23:44:57Z"
    assert cell(instant, PIPE) == instant


def test_fields_without_a_value_are_left_out_and_long_ones_cut() -> None:
    lines = field_lines({"key": None, "run_id": RUN_ID, "input": {"a": "x" * 90}}, PLAIN)
    assert lines[0] == f"run_id  {RUN_ID}"
    assert width_of(lines[1]) == 60
    assert lines[1].endswith("…")
    wide = field_lines({"error": "no luck " * 20, "key": "k"}, PLAIN, whole=("error",))
    assert (
        " ".join(line.strip() for line in wide[:-1]).removeprefix("error  ")
        == ("no luck " * 20).strip()
    )
    whole = field_lines({"input": {"a": "é"}}, PIPE)
    assert json.loads(whole[0].removeprefix("input  ")) == {"a": "é"}


def test_control_characters_are_shown_instead_of_obeyed() -> None:
    assert harmless("a\x1b[2Jb\r\n\tc\x9b") == "a\\x1b[2Jb\\r\\n\\tc\\x9b"
    assert harmless("a\n\tb\x07", lines=True) == "a\n\tb\\x07"
    assert harmless("naïve 日本") == "naïve 日本"


@pytest.mark.parametrize(
    ("ago", "age"),
    [
        (timedelta(seconds=4), "4s"),
        (timedelta(seconds=90), "1m"),
        (timedelta(hours=25), "1d"),
        (timedelta(hours=-1), "0s"),
    ],
)
def test_an_age_has_one_unit(ago: timedelta, age: str) -> None:
    assert age_of(format_instant(datetime.now(UTC) - ago)) == age


def test_a_cut_never_splits_a_wide_character() -> None:
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 3) == "abc"
