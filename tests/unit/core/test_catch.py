"""`catch`: where a list goes on when a step of it fails."""

import pytest

from tests.support.scenario import given_yaml

pytestmark = pytest.mark.usefixtures("loading")


def caught(rows: str, error_type: str = "Boom") -> str:
    story = given_yaml(f"""
    - name: work
      task: work
      end: true
      catch: {rows}
    - {{name: first, pass: "${{ steps.work.error.type }}", end: true}}
    - {{name: second, pass: 2}}
    """)
    story.fails("work", error_type, details={"code": 402})
    return (
        next(n for n in ("first", "second") if story.status(n) == "completed")
        if story.status() == "completed"
        else story.error().type
    )


@pytest.mark.parametrize(
    ("rows", "error_type", "expected"),
    [
        ("[{next: first}, {next: second}]", "Boom", "first"),
        ("[{errors: [Boom, Bang], next: first}, {next: second}]", "Bang", "first"),
        ("[{errors: [Boom], next: first}, {next: second}]", "Other", "second"),
        ("[{when: 'error.details.code == 402', next: first}, {next: second}]", "Boom", "first"),
        ("[{when: 'error.details.code == 1', next: first}, {next: second}]", "Boom", "second"),
        ("[{errors: [Boom], next: first}, {errors: [Bang], next: second}]", "Other", "Other"),
    ],
)
def test_the_first_row_that_matches_takes_the_list_on(
    rows: str, error_type: str, expected: str
) -> None:
    assert caught(rows, error_type) == expected


def test_a_condition_that_cannot_be_evaluated_catches_nothing_and_is_attached() -> None:
    story = given_yaml("""
    - name: work
      task: work
      catch: [{when: "error.details.nothing == 1", next: first}]
    - {name: first, pass: 1}
    """)
    story.fails("work")
    assert story.error().type == "Boom"
    assert "ExpressionError" in (story.error().attached or "")


def test_errors_of_the_engine_are_caught_too() -> None:
    story = given_yaml(
        """
    - name: work
      pass: "${ input.nothing }"
      catch: [{errors: [ExpressionError], next: other}]
      end: true
    - {name: other, pass: "${ prev == null }"}
    """,
        run_input={},
    )
    assert story.status() == "completed"
    assert story.output() is True
