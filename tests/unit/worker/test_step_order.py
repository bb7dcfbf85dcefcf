"""Steps are shown in the order of the lists that they stand in."""

import json
from typing import Any

from msgspec import Raw

from towpath_protocol import replies
from towpath_worker.step_order import depth_of, in_list_order
from towpath_worker.transport import NoAnswerError

DOCUMENT: dict[str, Any] = {
    "workflow": "order",
    "steps": [
        {"name": "reserve", "task": "t"},
        {"name": "lines", "map": {"items": "${ input }", "steps": [{"name": "z"}, {"name": "a"}]}},
        {"name": "notify", "parallel": {"branches": {"mail": [{"name": "send"}], "app": []}}},
        {"name": "charge", "task": "t"},
    ],
}


def a_step(path: str) -> replies.StepView:
    return replies.StepView(step=path, kind="task", status="completed", attempt=1, iteration=0)


async def a_workflow() -> replies.WorkflowView:
    return replies.WorkflowView(
        workflow="order",
        version=1,
        fingerprint="f",
        created_at="2026-01-01T00:00:00.000000Z",
        definition=Raw(json.dumps(DOCUMENT).encode()),
    )


async def nobody() -> replies.WorkflowView:
    raise NoAnswerError("nobody answers")


async def ordered(*paths: str) -> list[str]:
    return [step.step for step in await in_list_order(a_workflow(), [a_step(p) for p in paths])]


async def test_steps_stand_as_in_their_lists_each_before_what_lies_below_it() -> None:
    wanted = [
        "reserve", "lines", "lines[2]", "lines[2]/z", "lines[2]/a", "lines[10]", "notify",
        "notify/mail", "notify/mail/send", "notify/app", "charge",
    ]  # fmt: skip
    assert await ordered(*sorted(wanted)) == wanted


async def test_an_earlier_visit_stands_before_the_step_as_it_is_now() -> None:
    assert await ordered("charge", "charge#10", "charge#2") == ["charge#2", "charge#10", "charge"]


async def test_what_lies_below_a_later_visit_of_a_step_stands_behind_the_earlier_one() -> None:
    wanted = ["lines", "lines[9]", "lines[9]/z", "lines~2[0]", "lines~2[0]/a", "lines~10[0]"]
    assert await ordered(*sorted(wanted)) == wanted


async def test_without_the_workflow_they_stand_by_name_and_index() -> None:
    steps = [a_step(path) for path in ("reserve", "lines[10]", "lines[9]", "charge")]
    found = [step.step for step in await in_list_order(nobody(), steps)]
    assert found == ["charge", "lines[9]", "lines[10]", "reserve"]


def test_the_depth_counts_parts_and_the_lists_in_them() -> None:
    assert [depth_of(path) for path in ("a", "a[3]", "a[3]/b", "a/x/b", "a[3]/b[1]/c")] == [
        0, 1, 2, 2, 4,
    ]  # fmt: skip
