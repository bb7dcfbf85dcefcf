"""The small pure parts: backoff, chance, instants, metadata, the mapping of steps, reasons."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import BEGIN, RUN_ID, a_sleep, a_task, a_wait, json_of
from tests.support.scenario import given as a_story
from towpath_engine.core.chance import new_share, new_token, run_of_token
from towpath_engine.core.decide import step_of_token
from towpath_engine.core.definition import RetryPolicy
from towpath_engine.core.dispatching import NotDispatched, dispatch_body
from towpath_engine.core.explain import ReasonKind, reasons_of
from towpath_engine.core.instants import LATEST, plus_ms, seconds_until
from towpath_engine.core.metadata import merged
from towpath_engine.core.model import Run, Step
from towpath_engine.core.retry import backoff_ms, release_wait_ms
from towpath_engine.core.states import OPEN_STEP, StepKind, StepStatus
from towpath_engine.core.stepmap import StepMap
from towpath_protocol.ids import check_token

UNHURRIED = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def test_the_backoff_grows_by_its_factor_up_to_its_cap() -> None:
    policy = RetryPolicy(initial_ms=1_000, factor=2, max_ms=10_000, jitter=0)
    waits = [backoff_ms(policy, attempt, 0.5) for attempt in range(1, 7)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]


def test_a_factor_of_one_waits_the_same_each_time() -> None:
    policy = RetryPolicy(initial_ms=700, factor=1, jitter=0)
    assert {backoff_ms(policy, attempt, 0) for attempt in (1, 2, 50)} == {700}


@given(st.integers(1, 10_000), st.floats(0, 0.999), st.floats(0, 1), st.floats(1, 10))
@UNHURRIED
def test_jitter_moves_a_wait_by_its_share_and_never_beyond_the_cap(
    attempt: int, share: float, jitter: float, factor: float
) -> None:
    policy = RetryPolicy(initial_ms=1_000, factor=factor, max_ms=30_000, jitter=jitter)
    plain = min(1_000 * factor ** min(attempt - 1, 300), 1e15)
    wait = backoff_ms(policy, attempt, share)
    assert wait <= 30_000
    assert wait >= min(plain * (1 - jitter), 30_000) - 1
    assert wait <= plain * (1 + jitter) + 1


def test_jitter_spreads_the_waits_of_many_runs() -> None:
    policy = RetryPolicy(initial_ms=10_000, jitter=0.2, max_ms=60_000)
    waits = {backoff_ms(policy, 1, new_share(f"{n:032x}", "s")) for n in range(200)}
    assert len(waits) > 150
    assert min(waits) >= 8_000
    assert max(waits) <= 12_000


def test_a_drained_worker_asks_when_and_an_unknown_task_backs_off() -> None:
    assert release_wait_ms(1, after_ms=None, unknown_task=False) == 0
    assert release_wait_ms(9, after_ms=500, unknown_task=False) == 500
    assert release_wait_ms(1, after_ms=90_000, unknown_task=True) == 90_000
    assert release_wait_ms(10**9, after_ms=None, unknown_task=True) == 60_000


def test_a_token_is_a_name_that_tells_whose_it_is() -> None:
    token = new_token("seed", RUN_ID, "step", 1)
    assert check_token(token) == token
    assert run_of_token(token) == RUN_ID
    assert token == new_token("seed", RUN_ID, "step", 1)
    others = {new_token("other", RUN_ID, "step", 1), new_token("seed", RUN_ID, "step", 2)}
    assert token not in others
    assert run_of_token("nonsense") is None


def test_no_wait_reaches_beyond_the_years_that_can_be_stored() -> None:
    assert plus_ms(BEGIN, 10**18) == LATEST
    assert plus_ms(LATEST, 1) == LATEST
    assert plus_ms(BEGIN, 1) == BEGIN + timedelta(milliseconds=1)
    assert plus_ms(BEGIN, 30 * 86_400_000) == datetime(2030, 1, 31, tzinfo=UTC)


def test_seconds_until_are_rounded_up_and_never_negative() -> None:
    assert seconds_until(BEGIN + timedelta(milliseconds=1), BEGIN) == 1
    assert seconds_until(BEGIN, BEGIN + timedelta(days=1)) == 0


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"n": 1.0}, {"m": 2**70}, {"n": 1.0, "m": 2**70}),
    ],
)
def test_metadata_is_merged_as_the_standards_examples_say(
    target: object, patch: object, result: object
) -> None:
    assert merged(json_of(target), json_of(patch), bytes_max=1_000) == json_of(result)


_STEPS = st.builds(
    Step,
    path=st.integers(0, 99).map(lambda n: f"s{n}"),
    kind=st.just(StepKind.TASK),
    status=st.sampled_from(StepStatus),
)
_DERIVATIONS = st.lists(
    st.tuples(st.lists(_STEPS, max_size=40), st.lists(st.integers(0, 99).map("s{}".format))),
    max_size=12,
)


@given(st.dictionaries(st.just("s1"), _STEPS), _DERIVATIONS)
@UNHURRIED
def test_a_derived_mapping_is_what_a_copied_dictionary_would_be(
    first: dict[str, Step], derivations: list[tuple[list[Step], list[str]]]
) -> None:
    copied = {step.path: step for step in first.values()}
    steps = StepMap.of(copied)
    for changed, forgotten in derivations:
        before, kept = steps, dict(steps)
        steps = steps.derive(changed, forgotten)
        assert dict(before) == kept, "deriving changes nothing that was there"
        copied = copied | {step.path: step for step in changed}
        for path in forgotten:
            copied.pop(path, None)
        assert dict(steps) == copied
        assert len(steps) == len(copied)
        assert set(steps.open) == {p for p, s in copied.items() if s.status in OPEN_STEP}


def test_a_run_in_memory_keeps_only_the_steps_that_something_may_ask_for() -> None:
    names = [f"s{n}" for n in range(200)]
    steps = [a_task(name) for name in names]
    story = a_story(*steps, output="${ steps.s7.output }")
    sizes: set[int] = set()
    for name in names:
        story.completes(name, name)
        sizes.add(len(story.run.steps))
    assert story.output() == "s7"
    assert max(sizes) <= 3


def test_every_open_run_has_its_reason() -> None:
    story = a_story(a_task("a", retry={"max_attempts": 2}), a_wait("w", timeout="1h"), a_sleep("s"))
    kinds = [_only_reason(story.run)]
    story.is_started("a")
    kinds.append(_only_reason(story.run))
    story.fails("a")
    kinds.append(_only_reason(story.run))
    story.time_passes_until_due("a")
    story.completes("a")
    kinds.append(_only_reason(story.run))
    story.is_signalled()
    kinds.append(_only_reason(story.run))
    story.time_passes_until_due("s")
    assert reasons_of(story.run) == []
    assert kinds == [
        ReasonKind.DISPATCH,
        ReasonKind.ATTEMPT,
        ReasonKind.INSTANT,
        ReasonKind.SIGNAL,
        ReasonKind.INSTANT,
    ]


def _only_reason(run: Run) -> ReasonKind:
    (reason,) = reasons_of(run)
    return reason.kind


def test_a_dispatch_can_be_written_again_from_what_is_stored() -> None:
    story = a_story(a_task("a", input={"x": "${ now }"}), timeout="1h")
    assert dispatch_body(story.run, story.run.steps["a"]) == story.dispatches[0].body
    step = step_of_token(story.run, story.token("a"))
    assert step is not None
    assert step.path == "a"
    story.is_cancelled()
    with pytest.raises(NotDispatched):
        dispatch_body(story.run, story.steps["a"])
