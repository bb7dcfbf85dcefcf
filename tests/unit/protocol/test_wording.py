"""A refused value is told in words, with the rule, never as a pattern."""

import pytest
from msgspec import Struct

from towpath_protocol import codec
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.operations import DiscardDeadLetters, PauseTask
from towpath_protocol.requests import GetRun, ListRuns, StartRun
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
        (b'{"workflow": 1}', StartRun, "workflow: Expected `str`, got `int`"),
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
    for message in ("Expected `str` matching regex '^other$'", "Object missing required field"):
        assert in_words(message) == (message, "")
