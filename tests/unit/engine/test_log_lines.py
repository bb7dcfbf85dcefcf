"""Lines of a run's log as people read them."""

from msgspec.structs import replace

from towpath_engine.cli.following import log_text
from towpath_engine.cli.terminal import Terminal
from towpath_worker import LogLine

LINE = LogLine(
    batch=1, step="work", attempt=2, at="2026-01-01T10:00:00.000000Z", level="info", message="hello"
)


def test_a_line_says_that_older_ones_of_its_attempt_were_cut() -> None:
    on = Terminal(width=80, colours=False)
    assert log_text(LINE, on) == "10:00:00 info    work#2 hello"
    assert log_text(replace(LINE, cut=True), on).splitlines() == [
        "10:00:00         work#2 [earlier lines were cut]",
        "10:00:00 info    work#2 hello",
    ]
