"""At which rows a run has ended: what a retry begins again, and what it leaves alone."""

from msgspec.structs import replace

from tests.support.builders import a_definition, a_run, a_task
from towpath_engine.core.ended import EndedRows
from towpath_engine.core.model import Failure, Parts, Step
from towpath_engine.core.states import StepKind, StepStatus

FAILED, CANCELLED = StepStatus.FAILED, StepStatus.CANCELLED
PARTS = Parts(total=3, started=3)


def an_error(step: str | None) -> Failure:
    return Failure(type="Boom", message="it failed", step=step)


def a_row(
    path: str, status: StepStatus, kind: StepKind = StepKind.TASK, *, at: str | None = None
) -> Step:
    parts = PARTS if kind in {StepKind.MAP, StepKind.PARALLEL} else None
    return Step(path=path, kind=kind, status=status, parts=parts, error=an_error(at or path))


def ended(*rows: Step, at: str | None) -> EndedRows:
    run = replace(a_run(a_definition(a_task("a"))), error=an_error(at))
    return EndedRows(run, rows)


def paths(rows: EndedRows) -> list[str]:
    return [step.path for step in rows.leaves()]


def test_a_list_ended_at_the_step_that_failed_it_and_at_those_that_were_open() -> None:
    rows = ended(a_row("a", FAILED), a_row("b", CANCELLED), a_row("c", FAILED), at="a")
    assert paths(rows) == ["a", "b"]


def test_the_way_leads_through_wholes_and_their_parts_to_the_innermost_steps() -> None:
    rows = ended(
        a_row("lines", FAILED, StepKind.MAP, at="lines[1]/pack"),
        a_row("lines[1]", FAILED, StepKind.ITEM, at="lines[1]/pack"),
        a_row("lines[1]/pack", FAILED),
        a_row("lines[2]", CANCELLED, StepKind.ITEM),
        a_row("lines[2]/both", CANCELLED, StepKind.PARALLEL),
        a_row("lines[2]/both/x", CANCELLED, StepKind.BRANCH),
        a_row("lines[2]/both/x/send", CANCELLED),
        at="lines[1]/pack",
    )
    assert paths(rows) == ["lines[1]/pack", "lines[2]/both/x/send"]
    assert [part.path for part in rows.parts_of("lines")] == ["lines[1]", "lines[2]"]


def test_what_was_caught_or_tolerated_is_left_alone_with_all_below_it() -> None:
    rows = ended(
        a_row("notify", FAILED, StepKind.PARALLEL, at="notify/mail/send"),
        a_row("notify/mail", FAILED, StepKind.BRANCH, at="notify/mail/send"),
        a_row("notify/mail/send", FAILED),
        a_row("lines[4]", FAILED, StepKind.ITEM, at="lines[4]/pack"),
        a_row("lines[4]/pack", FAILED),
        a_row("charge", FAILED),
        at="charge",
    )
    assert paths(rows) == ["charge"]


def test_a_step_in_an_item_whose_failure_was_caught_there_is_left_alone() -> None:
    rows = ended(
        a_row("lines", FAILED, StepKind.MAP, at="lines[0]/second"),
        a_row("lines[0]", FAILED, StepKind.ITEM, at="lines[0]/second"),
        a_row("lines[0]/first", FAILED),
        a_row("lines[0]/second", FAILED),
        at="lines[0]/second",
    )
    assert paths(rows) == ["lines[0]/second"]


def test_a_whole_that_never_had_parts_is_begun_again_itself() -> None:
    whole = replace(a_row("lines", FAILED, StepKind.MAP), parts=None)
    assert paths(ended(whole, at="lines")) == ["lines"]


def test_a_name_that_only_begins_alike_is_another_step() -> None:
    rows = ended(a_row("line", FAILED), a_row("lines[0]/pack", FAILED), at="lines[0]/pack")
    assert paths(rows) == []


def test_after_a_deadline_everything_that_was_open_goes_on_and_no_archived_visit() -> None:
    rows = ended(a_row("a", CANCELLED), a_row("a#1", CANCELLED), a_row("b", FAILED), at=None)
    assert paths(rows) == ["a"]
