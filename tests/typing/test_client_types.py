"""The client's types, by the strict checker: what it must accept and what it must refuse."""

from pathlib import Path

from tests.typing.test_worker_types import HERE, MARK, found


def test_correct_client_programs_are_accepted(tmp_path: Path) -> None:
    assert found("accepted_client.py", tmp_path) == []


def test_wrong_client_programs_are_refused_line_by_line(tmp_path: Path) -> None:
    lines = (HERE / "rejected_client.py").read_text().splitlines()
    expected = [
        (number, match.group(1))
        for number, line in enumerate(lines, start=1)
        if (match := MARK.search(line)) is not None
    ]
    assert len(expected) > 20
    assert found("rejected_client.py", tmp_path) == expected
