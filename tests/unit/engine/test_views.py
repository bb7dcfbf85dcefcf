"""What run.get shows of a run whose values are larger than an answer may be."""

from msgspec.structs import replace

from tests.support.builders import a_definition, a_pass, a_run, a_task, json_of
from tests.support.scenario import given
from towpath_engine.services.api.views import VALUE_BYTES_MAX, run_view, step_view
from towpath_protocol import codec


def test_values_that_fit_are_in_the_answer_and_nothing_is_said_to_be_left_out() -> None:
    run = replace(a_run(a_definition(a_pass("p")), run_input=[1]), output=json_of("done"))
    answer = codec.encode(run_view(run, (), None))
    assert b'"input":[1]' in answer
    assert b'"output":"done"' in answer
    assert b"omitted" not in answer


def test_a_value_that_is_too_large_is_null_and_its_size_is_named() -> None:
    large = "x" * VALUE_BYTES_MAX
    run = replace(a_run(a_definition(a_pass("p")), run_input=large), output=json_of(large))
    answer = codec.encode(run_view(run, (), None))
    size = VALUE_BYTES_MAX + 2  # its quotes
    assert f'"input_omitted":{size}'.encode() in answer
    assert f'"output_omitted":{size}'.encode() in answer
    assert b'"input":null' in answer
    assert b'"output":null' in answer


def test_an_error_is_shown_until_the_step_is_done_and_then_no_more() -> None:
    story = given(a_task("work", retry={"max_attempts": 2, "backoff": {"initial": "1s"}}))
    story.fails("work", "HttpError", message="503")
    view, _ = step_view(story.run.steps["work"], 1_000)
    assert view.error is not None
    assert (view.error.type, view.error.message) == ("HttpError", "503")
    story.time_passes_until_due("work")
    story.completes("work")
    done, _ = step_view(story.run.steps["work"], 1_000)
    assert (done.status, done.attempt, done.error) == ("completed", 2, None)
