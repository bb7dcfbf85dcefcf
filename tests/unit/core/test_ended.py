"""At which rows a run has ended: what a retry begins again, and what it leaves alone."""

import pytest
from msgspec.structs import replace

from tests.support.builders import BEGIN, a_cause, a_definition, a_run, a_task
from towpath_engine.core.changes import Changes, StepsNeeded
from towpath_engine.core.ended import ended_leaves, ended_parts, has_ended_at, load_ahead
from towpath_engine.core.model import Failure, Parts, Step
from towpath_engine.core.states import StepKind, StepStatus

FAILED, CANCELLED, COMPLETED = StepStatus.FAILED, StepStatus.CANCELLED, StepStatus.COMPLETED
DEFINITION = a_definition(
    {
        "name": "lines",
        "map": {
            "items": "${ input }",
            "steps": [
                a_task("pick"),
                {
                    "name": "both",
                    "parallel": {"branches": {"x": [a_task("send")], "y": [a_task("print")]}},
                },
            ],
        },
    },
    {"name": "notify", "parallel": {"branches": {"mail": [a_task("mail")]}}},
    a_task("charge"),
)


def an_error(step: str | None) -> Failure:
    return Failure(type="Boom", message="it failed", step=step)


def a_row(
    path: str,
    status: StepStatus,
    kind: StepKind = StepKind.TASK,
    *,
    at: str | None = None,
    started: int = 0,
    reached: bytes = b"",
) -> Step:
    wholes = {StepKind.MAP, StepKind.PARALLEL}
    parts = Parts(total=started, started=started) if kind in wholes else None
    error = None if status is COMPLETED else an_error(at or path)
    return Step(path=path, kind=kind, status=status, parts=parts, error=error, reached=reached)


def ended(*rows: Step, at: str | None, reached: bytes = b"\x01") -> Changes:
    """A run that failed at this step, and is about to go on."""
    run = replace(
        a_run(DEFINITION),
        error=an_error(at),
        revival_count=1,
        reached=reached,
        steps={row.path: row for row in rows},
    )
    return Changes(run, seed="0" * 32, cause=a_cause("retry"), now=BEGIN)


def paths(changes: Changes) -> list[str]:
    return [step.path for step in ended_leaves(changes, enough=1_000)]


MAP_ROWS = (
    a_row("lines", FAILED, StepKind.MAP, at="lines[1]/pick", started=3),
    a_row("lines[0]", COMPLETED, StepKind.ITEM, reached=b"\x03"),
    a_row("lines[1]", FAILED, StepKind.ITEM, at="lines[1]/pick", reached=b"\x01"),
    a_row("lines[1]/pick", FAILED),
    a_row("lines[2]", CANCELLED, StepKind.ITEM, reached=b"\x03"),
    a_row("lines[2]/pick", COMPLETED),
    a_row("lines[2]/both", CANCELLED, StepKind.PARALLEL, started=2),
    a_row("lines[2]/both/x", CANCELLED, StepKind.BRANCH, reached=b"\x01"),
    a_row("lines[2]/both/x/send", CANCELLED),
    a_row("lines[2]/both/y", COMPLETED, StepKind.BRANCH, reached=b"\x01"),
)


def test_the_way_leads_through_wholes_and_their_parts_to_the_innermost_steps() -> None:
    changes = ended(*MAP_ROWS, at="lines[1]/pick")
    assert paths(changes) == ["lines[1]/pick", "lines[2]/both/x/send"]
    whole = changes.need("lines")
    assert [part.path for part in ended_parts(changes, whole)] == ["lines[1]", "lines[2]"]
    assert has_ended_at(changes, "lines[2]/both/x/send")
    assert not has_ended_at(changes, "lines[2]/pick"), "it is completed"
    assert not has_ended_at(changes, "lines[0]/pick"), "its item is completed"
    assert not has_ended_at(changes, "lines[7]/pick"), "there is no such item"
    assert not has_ended_at(changes, "lines/pick"), "this is no path of a run"


def test_what_was_caught_or_tolerated_is_left_alone_with_all_below_it() -> None:
    changes = ended(
        a_row("notify", FAILED, StepKind.PARALLEL, at="notify/mail/mail", started=1),
        a_row("notify/mail", FAILED, StepKind.BRANCH, at="notify/mail/mail", reached=b"\x01"),
        a_row("notify/mail/mail", FAILED),
        a_row("lines", COMPLETED, StepKind.MAP, started=1),
        a_row("lines[0]", FAILED, StepKind.ITEM, at="lines[0]/pick", reached=b"\x01"),
        a_row("lines[0]/pick", FAILED),
        a_row("charge", FAILED),
        at="charge",
        reached=b"\x07",
    )
    assert paths(changes) == ["charge"]
    assert not has_ended_at(changes, "notify/mail/mail")
    assert not has_ended_at(changes, "lines[0]/pick")


def test_a_step_in_an_item_whose_failure_was_caught_there_is_left_alone() -> None:
    changes = ended(
        a_row("lines", FAILED, StepKind.MAP, at="lines[0]/both/x/send", started=1),
        a_row("lines[0]", FAILED, StepKind.ITEM, at="lines[0]/both/x/send", reached=b"\x03"),
        a_row("lines[0]/pick", FAILED),
        a_row("lines[0]/both", FAILED, StepKind.PARALLEL, at="lines[0]/both/x/send", started=1),
        a_row("lines[0]/both/x", FAILED, StepKind.BRANCH, at="lines[0]/both/x/send",
              reached=b"\x01"),
        a_row("lines[0]/both/x/send", FAILED),
        at="lines[0]/both/x/send",
    )  # fmt: skip
    assert paths(changes) == ["lines[0]/both/x/send"]


def test_a_whole_that_never_had_parts_is_begun_again_itself() -> None:
    whole = replace(a_row("lines", FAILED, StepKind.MAP), parts=None)
    assert paths(ended(whole, at="lines")) == ["lines"]


def test_the_parts_of_a_later_visit_are_those_that_count() -> None:
    whole = replace(a_row("lines", FAILED, StepKind.MAP, at="lines[0]/pick", started=1), visit=2)
    changes = ended(
        whole,
        a_row("lines[0]", FAILED, StepKind.ITEM, at="lines[0]/pick", reached=b"\x01"),
        a_row("lines[0]/pick", FAILED),
        a_row("lines~2[0]", FAILED, StepKind.ITEM, at="lines[0]/pick", reached=b"\x01"),
        a_row("lines~2[0]/pick", FAILED),
        at="lines[0]/pick",
    )
    assert paths(changes) == ["lines~2[0]/pick"]


def test_what_was_revived_is_not_revived_once_more_though_it_failed_anew() -> None:
    rows = [replace(row, revival_count=1) if "/pick" in row.path else row for row in MAP_ROWS]
    assert paths(ended(*rows, at="lines[1]/pick")) == ["lines[2]/both/x/send"]


def test_rows_are_asked_for_by_depth_those_of_many_lists_at_once() -> None:
    rows = {row.path: row for row in MAP_ROWS}
    known: dict[str, Step] = {}
    asked: list[set[str]] = []
    for _ in range(9):
        try:
            found = paths(ended(*known.values(), at="lines[1]/pick"))
            break
        except StepsNeeded as needed:
            asked.append({*needed.paths, *(f"{whole}…" for whole in needed.parts_of)})
            for path in needed.paths:
                known[path] = rows[path]
            for row in rows.values():
                if row.kind in {StepKind.ITEM, StepKind.BRANCH} and any(
                    row.path.startswith((f"{whole}[", f"{whole}/"))
                    and whole.count("/") == row.path.count("/") - (row.kind is StepKind.BRANCH)
                    for whole in needed.parts_of
                ):
                    known[row.path] = row
    else:
        pytest.fail(f"it asks for ever: {asked}")
    assert found == ["lines[1]/pick", "lines[2]/both/x/send"]
    assert asked == [
        {"lines"},
        {"lines…"},
        {"lines[1]/pick", "lines[2]/pick", "lines[2]/both"},
        {"lines[2]/both…"},
        {"lines[2]/both/x/send"},
    ]


def test_who_comes_to_one_part_has_those_after_it_loaded_too() -> None:
    known = [row for row in MAP_ROWS if row.path.count("/") == 0]
    changes = ended(*known, at="lines[1]/pick")
    with pytest.raises(StepsNeeded) as caught:
        load_ahead(changes, changes.need("lines[1]"))
    assert caught.value.paths == {"lines[1]/pick", "lines[2]/pick", "lines[2]/both"}
