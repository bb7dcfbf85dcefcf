"""Pictures of runs: states, times and numbers, and the way that a run took."""

import xml.etree.ElementTree as ET

from tests.support.pictures import as_mermaid, as_svg, overlaps, row, seen_of, taken
from towpath_engine.core.model import Parts
from towpath_engine.drawing.seen import RunSeen

AT = "2026-01-31T12:00:0{}.000000Z"


def test_a_step_shows_its_state_its_attempts_and_its_times() -> None:
    reserve = row(
        "reserve", "completed", attempt=3, started_at=AT.format(1), settled_at=AT.format(4)
    )
    approval = row(
        "approval", "waiting", kind="wait", waiting_for="signal", started_at=AT.format(4)
    )
    text = as_svg(seen=seen_of("waiting", reserve, approval))
    for line in (
        "completed, attempt 3",
        "2026-01-31 12:00:01Z, took 3s",
        "waiting for signal",
        "since 2026-01-31 12:00:04Z",
    ):
        assert f">{line}</text>" in text
    drawn = as_mermaid(seen=seen_of("waiting", reserve, approval))
    assert "  class s1 completed\n" in drawn
    assert "  class s2 waiting\n" in drawn


def test_a_failed_step_names_its_error_and_a_child_run_its_id() -> None:
    child = "01890a5d-ac96-774b-bcce-b302099a8057"
    text = as_svg(
        seen=seen_of(
            "failed",
            row("reserve", "compensation_failed", error_type="Boom<>"),
            row("invoice", "failed", kind="run", error_type="ChildFailed", child_run_id=child),
        )
    )
    assert ">compensation failed, Boom&lt;&gt;</text>" in text
    assert f">{child}</text>" in text


def test_items_are_counted_and_not_drawn() -> None:
    seen = RunSeen(status="running")
    parts = Parts(total=10_000, started=9_020, open=20, failed=18)
    seen.add_row(row("lines", "running", kind="map", parts=parts))
    for number in range(9_020):
        status = "dispatched" if number < 20 else "failed" if number < 38 else "completed"
        seen.add_row(row(f"lines[{number}]", "running", kind="item"))
        seen.add_row(row(f"lines[{number}]/pick", status, attempt=1 + number % 2))
    text = as_svg(seen=seen)
    assert ">10,000 items</text>" in text
    assert ">8,982 done, 18 failed, 20 open</text>" in text
    assert ">8,982 completed, 20 dispatched, 18 failed</text>" in text
    assert ">up to attempt 2</text>" in text
    assert len(text) < 1.1 * len(as_svg())
    assert overlaps(text) == []


def test_only_the_last_visit_of_a_whole_is_counted() -> None:
    parts = Parts(total=2, started=2, open=1)
    seen = seen_of(
        "running",
        row("notify", "running", kind="parallel", visit=2, parts=parts),
        row("notify#1", "completed", kind="parallel", parts=parts),
        row("notify/email", "failed", kind="branch"),
        row("notify/email/send", "failed"),
        row("notify~2/email", "running", kind="branch"),
        row("notify~2/email/send", "dispatched"),
        row("notify~3/email/send", "completed"),
    )
    assert seen.places["notify"].counts == {"running": 1}
    assert seen.places["notify/email"].counts == {"running": 1}
    assert seen.places["notify/email/send"].counts == {"dispatched": 1}


def test_visits_of_a_whole_within_an_item_are_told_from_those_in_other_items() -> None:
    parts = Parts(total=2, started=2, open=1)
    seen = seen_of(
        "running",
        row("lines", "running", kind="map", parts=parts),
        row("lines[0]/check", "completed", kind="parallel", parts=parts),
        row("lines[0]/check/weight/weigh", "completed"),
        row("lines[1]/check", "running", kind="parallel", parts=parts, visit=2),
        row("lines[1]/check/weight/weigh", "failed"),
        row("lines[1]/check~2/weight/weigh", "dispatched"),
    )
    assert seen.places["lines/check/weight/weigh"].counts == {"completed": 1, "dispatched": 1}


def test_the_way_follows_from_the_rows_where_there_is_no_other() -> None:
    seen = seen_of(
        "completed",
        row("reserve", "completed"),
        row("approval", "skipped", kind="wait"),
        row("notify", "completed", kind="parallel"),
        row("notify/email/send", "failed"),
        row("notify/email/give_up", "completed", kind="pass"),
        row("lines", "completed", kind="map"),
        row("cool_off", "completed", kind="sleep"),
        row("ready", "completed"),
        row("route", "completed", kind="choice", chosen="ship"),
        row("ship_fr", "skipped"),
        row("ship", "completed"),
        row("totals", "completed", kind="pass"),
        row("invoice", "completed", kind="run"),
        row("apologise", "skipped"),
    )
    assert taken(as_mermaid(seen=seen)) == {
        "order > reserve", "reserve > approval", "approval > notify", "notify > lines",
        "send > give_up", "lines > cool_off", "cool_off > ready", "ready > route", "route > ship",
        "ship > totals", "totals > invoice", "invoice > end",
    }  # fmt: skip


def test_the_history_tells_which_of_several_ways_were_taken() -> None:
    seen = seen_of(
        "completed",
        row("reserve", "failed"),
        row("approval", "skipped", kind="wait"),
        row("apologise", "completed"),
    )
    for path, before, after in (
        ("reserve", "pending", "dispatched"),
        ("reserve", "dispatched", "failed"),
        ("apologise", "pending", "dispatched"),
        ("apologise", "dispatched", "completed"),
        # What the run did not come to is skipped when it settles.
        ("approval", "pending", "skipped"),
    ):
        seen.add_transition(path=path, what="step-", before=before, after=after)
    found = taken(as_mermaid(seen=seen))
    assert "reserve > apologise" in found
    assert "reserve > approval" not in found
    assert "approval > apologise" not in found


def test_a_timeout_is_told_from_the_signal_by_the_history() -> None:
    seen = seen_of(
        "running",
        row("reserve", "completed"),
        row("approval", "completed", kind="wait"),
        row("apologise", "dispatched"),
    )
    for path, before, after in (
        ("reserve", "pending", "completed"),
        ("approval", "pending", "waiting"),
        ("approval", "waiting", "completed"),
        ("apologise", "pending", "dispatched"),
    ):
        seen.add_transition(path=path, what="step-", before=before, after=after)
    found = taken(as_mermaid(seen=seen))
    assert found == {"order > reserve", "reserve > approval", "approval > apologise"}


def test_a_loop_that_was_taken_is_marked_although_the_last_choice_was_another() -> None:
    seen = seen_of(
        "running",
        row("ready", "completed", visit=2),
        row("route", "completed", kind="choice", chosen="ship", visit=2),
        row("ship", "dispatched"),
    )
    for path, what, before, after in (
        ("route", "step-completed", "pending", "completed"),
        ("ready", "step-revisited", "completed", "pending"),
        ("ready", "step-completed", "dispatched", "completed"),
        ("route", "step-revisited", "completed", "pending"),
        ("route", "step-completed", "pending", "completed"),
        ("ship", "step-dispatched", "pending", "dispatched"),
    ):
        seen.add_transition(path=path, what=what, before=before, after=after)
    found = taken(as_mermaid(seen=seen))
    assert {"route > ready", "ready > route", "route > ship"} <= found


def test_a_run_that_has_not_begun_takes_no_way() -> None:
    text = as_mermaid(seen=seen_of("pending", row("reserve", "pending")))
    assert taken(text) == set()
    assert "linkStyle" not in text
    assert "class s1,s2," in text
    assert ET.fromstring(as_svg(seen=seen_of("pending")))


def test_a_run_that_ends_with_a_step_whose_condition_was_false_ends_there() -> None:
    document = b"""workflow: w
steps:
  - {name: a, pass: 1}
  - {name: c, choice: [{when: "false", next: b}], default: d}
  - {name: b, pass: 2, end: true}
  - {name: d, when: "false", pass: 3}"""
    seen = seen_of(
        "completed",
        row("a", "completed", kind="pass"),
        row("c", "completed", kind="choice", chosen="d"),
        row("b", "skipped", kind="pass"),
        row("d", "skipped", kind="pass"),
    )
    for path, after in (("a", "completed"), ("c", "completed"), ("d", "skipped"), ("b", "skipped")):
        seen.add_transition(path=path, what="step-", before="pending", after=after)
    assert taken(as_mermaid(document, seen)) == {"order > a", "a > c", "c > d", "d > end"}
