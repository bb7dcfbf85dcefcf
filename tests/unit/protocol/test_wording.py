"""A refused value is told in words, with the rule, never as a pattern."""

import pytest
from msgspec import Struct

from towpath_protocol import codec
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.operations import DiscardDeadLetters, PauseTask, RedriveRun
from towpath_protocol.requests import GetRun, ListRuns, StartManyItems, StartRun
from towpath_protocol.wording import in_words


@pytest.mark.parametrize(
    ("body", "shape", "said"),
    [
        (
            b'{"workflow": "bad name"}',
            StartRun,
            "workflow: is not allowed; use a letter, then at most 63 letters, digits, '_' or '-'",
        ),
        (
            b'{"task": "1"}',
            PauseTask,
            "task: is not allowed; use a letter, then at most 127 letters, digits, '_', '.' or '-'",
        ),
        (
            b'{"run_id": "x"}',
            GetRun,
            "run_id: is not allowed; use a UUID of version 7 in lower case, as run.start "
            "returned it",
        ),
        (
            b'{"workflow": "a", "tags": [""]}',
            StartRun,
            "tags[0]: has fewer than 1 characters; use at least 1",
        ),
        (b'{"ids": []}', DiscardDeadLetters, "ids: has fewer than 1 elements; use at least 1"),
        (b'{"limit": 0}', ListRuns, "limit: is less than 1; use at least 1"),
        (b'{"limit": 9999}', ListRuns, "limit: is more than 1000; use at most 1000"),
        (
            b'{"workflow": 1}',
            StartRun,
            "workflow: is a whole number, not text; send text in double quotes",
        ),
    ],
)
def test_a_refusal_names_the_field_the_fault_and_the_fix(
    body: bytes, shape: type[Struct], said: str
) -> None:
    with pytest.raises(ProtocolError) as refused:
        codec.decode(body, shape)
    assert str(refused.value) == said
    assert refused.value.code is ErrorCode.MALFORMED


def test_what_has_no_words_stays_as_it_is() -> None:
    for message in ("Expected `str` matching regex '^other$'", "Input data was truncated"):
        assert in_words(message) == (message, "")


@pytest.mark.parametrize(
    ("body", "shape", "said"),
    [
        (b"", StartRun, "the body is empty; send a JSON object with `workflow`"),
        (b" \n", StartRun, "the body is empty; send a JSON object with `workflow`"),
        (b"null", StartRun, "is null, not an object; send a JSON object with `workflow`"),
        (b"null", ListRuns, "is null, not an object; send a JSON object, `{}` at least"),
        (b"{}", RedriveRun, "has no field `run_id`; send a JSON object with `run_id` and `step`"),
        (b'{"workflow": %d}' % 10**30, StartRun,
         "workflow: is a number, not text; send text in double quotes"),
        (b'{"workflow": "a", "version": 1.5}', StartRun,
         "version: is a number, not whole, or too large; send a whole number of at most 64 bits"),
        (b'{"workflow": "a", "tags": {}}', StartRun,
         "tags: is an object, not an array; send an array"),
        (b'{"workflow": "a", "priority": "urgent"}', StartRun,
         "priority: is 'urgent'; use one of critical, high, normal, low"),
        (b'{"items": [], "items": 1}', StartManyItems,
         "items: stands twice in the same object; give each key once"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_send_instead(body: bytes, shape: type[Struct], said: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        codec.decode(body, shape)
    assert str(refused.value) == said


def test_a_cause_stands_before_any_cut_however_deep_its_place() -> None:
    deep = b'{"workflow": "a", "input": ' + b'{"a_long_name": ' * 70 + b"1" + b"}" * 71
    with pytest.raises(ProtocolError) as refused:
        codec.decode(deep, StartRun)
    assert "is nested deeper than 70 levels" in str(refused.value)[:120]
    assert str(refused.value).startswith("input.a_long_name")
    assert len(refused.value.field) <= 206, "the details say more of the place, and are bounded"
