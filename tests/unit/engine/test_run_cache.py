"""The cache of runs is bounded by all that a copy keeps alive."""

from msgspec.structs import replace

from tests.support.builders import a_definition, a_run, a_signal, a_wait
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import StepKind, StepStatus
from towpath_engine.core.stepmap import StepMap
from towpath_engine.metrics import Metrics
from towpath_engine.services.run_cache import RunCache
from towpath_engine.settings import Settings

KIB = 1024


def a_waiting_run(number: int, *, signals: int = 0, payload: str = "") -> Run:
    kept = tuple(a_signal(payload=payload, message_id=str(n)) for n in range(signals))
    return replace(a_run(a_definition(a_wait("w"))), id=f"run-{number}", version=1, kept=kept)


def a_cache(*, runs_max: int = 1_000, bytes_max: int = 1_000 * KIB) -> RunCache:
    return RunCache(runs_max=runs_max, bytes_max=bytes_max, metrics=Metrics())


def test_a_run_is_found_at_its_version_alone() -> None:
    cache = a_cache()
    cache.put(a_waiting_run(1))
    assert cache.get("run-1", 1) is not None
    assert cache.get("run-1", 2) is None


def test_a_copy_that_is_out_of_date_is_counted_and_dropped() -> None:
    metrics = Metrics()
    cache = RunCache(runs_max=9, bytes_max=1_000 * KIB, metrics=metrics)
    cache.put(a_waiting_run(1))
    assert cache.get("run-1", 2) is None
    assert cache.get("run-1", 1) is None
    text = metrics.render().decode()
    assert 'run_cache_total{result="stale"} 1.0' in text
    assert 'run_cache_total{result="miss"} 1.0' in text


def test_runs_of_another_engine_are_not_kept() -> None:
    mine = {"run-1", "run-2"}
    cache = RunCache(
        runs_max=9, bytes_max=1_000 * KIB, metrics=Metrics(), owns=lambda run_id: run_id in mine
    )
    for number in (1, 2, 3):
        cache.put(a_waiting_run(number))
    mine.discard("run-2")
    cache.put(a_waiting_run(2))
    assert [cache.newest(f"run-{n}") is not None for n in (1, 2, 3)] == [True, False, False]


def test_a_copy_that_is_older_than_what_another_engine_wrote_is_forgotten() -> None:
    cache = a_cache()
    cache.put(a_waiting_run(1))
    cache.drop_older("run-1", 1)
    cache.drop_older("run-2", 1)
    assert cache.newest("run-1") is not None
    cache.drop_older("run-1", 2)
    assert cache.newest("run-1") is None
    assert len(cache) == 0


def test_after_partitions_have_moved_a_copy_is_good_only_at_the_version_of_the_row() -> None:
    cache = a_cache()
    cache.put(a_waiting_run(1))
    cache.doubt()
    assert cache.newest("run-1") is None
    run = cache.get("run-1", 1)
    assert run is not None
    cache.put(run)
    assert cache.newest("run-1") is not None


def test_the_least_recently_used_run_goes_first() -> None:
    cache = a_cache(runs_max=2)
    for number in (1, 2):
        cache.put(a_waiting_run(number))
    cache.get("run-1", 1)
    cache.put(a_waiting_run(3))
    assert [cache.get(f"run-{n}", 1) is not None for n in (1, 2, 3)] == [True, False, True]


def test_kept_signals_count_as_bytes_of_the_run() -> None:
    cache = a_cache()
    for number in range(100):
        cache.put(a_waiting_run(number, signals=1, payload="x" * 50 * KIB))
    assert 0 < len(cache) < 20


def test_a_run_that_keeps_as_many_signals_as_it_may_is_kept() -> None:
    cache = a_cache(bytes_max=100_000 * KIB)
    cache.put(a_waiting_run(1, signals=10_000))
    assert cache.get("run-1", 1) is not None


def a_run_of_items(count: int, *, first_output: int = 0) -> Run:
    """All items of a map are open; the step before the map had an output of so many bytes."""
    run = a_run(a_definition(a_wait("w")))
    before = Step(
        path="before",
        kind=StepKind.TASK,
        status=StepStatus.COMPLETED,
        output=b"1" * first_output,
    )
    items = [
        Step(path=f"lines[{index}]", kind=StepKind.ITEM, status=StepStatus.RUNNING)
        for index in range(count)
    ]
    steps = {step.path: step for step in (before, *items)}
    return replace(run, id="run-1", version=1, last_step="before", steps=StepMap.of(steps))


def test_a_run_that_has_ten_thousand_items_open_with_a_step_each_is_kept() -> None:
    settings = Settings(nats_url="nats://nowhere", postgres_url="postgres://nowhere")
    cache = a_cache(bytes_max=settings.run_cache_bytes_max)
    cache.put(a_run_of_items(20_000, first_output=200 * KIB))
    assert cache.newest("run-1") is not None


def test_a_run_that_would_take_more_than_half_of_the_cache_is_not_kept() -> None:
    cache = a_cache(bytes_max=1_000 * KIB)
    cache.put(a_run_of_items(10, first_output=400 * KIB))
    assert cache.newest("run-1") is not None
    cache.put(a_run_of_items(10, first_output=500 * KIB))
    assert cache.newest("run-1") is None


def test_payloads_count_as_bytes_of_the_run_until_their_rows_are_let_go_of() -> None:
    cache = a_cache(bytes_max=1_000 * KIB)
    run = a_run_of_items(10, first_output=600 * KIB)
    smaller = replace(run, steps=StepMap.of(run.steps).derive((), ["before"]))
    cache.put(smaller)
    assert cache.newest("run-1") is smaller
