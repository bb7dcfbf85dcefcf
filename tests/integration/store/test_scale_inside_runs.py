"""What an event inside a run of 10,000 items costs Postgres: the same from the first to the last.

Rows written and read and bytes of WAL are counted by Postgres; times are told, never asserted.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.support.builders import Json, a_cause, a_definition, a_run, a_task
from tests.support.measured import measured
from tests.support.postgres import SERVER_VARIABLE
from tests.support.store_builders import a_document
from tests.support.stored_runs import Cost, StoredRun, typical
from tests.support.stores import a_postgres_store
from towpath_engine.core.events import CancelRequested, PauseRequested, ResumeRequested
from towpath_engine.core.states import RunStatus

ITEMS = 10_000
MEASURED = 60
COLD = 5
BYTES_MORE = 0.1
"""Bytes of an index that has grown by a level, of larger numbers and longer paths."""

# To a server that is given others write, too: its WAL is not ours alone.
OWN_SERVER = SERVER_VARIABLE not in os.environ


def is_as_cheap(last: Cost, first: Cost) -> bool:
    return not OWN_SERVER or last.wal <= first.wal * (1 + BYTES_MORE)


@asynccontextmanager
async def a_map(
    url: str, concurrency: int, *, items: int = ITEMS, step: Json | None = None
) -> AsyncGenerator[StoredRun]:
    """A run of a map that has begun."""
    each = step or a_task("pick", input="${ item }")
    inner = {"items": "${ input }", "max_concurrency": concurrency, "steps": [each]}
    definition = a_definition({"name": "lines", "map": inner})
    async with a_postgres_store(url, pool_size=1) as store:
        await store.deploy_workflow("order", "f-order", a_document())
        run = StoredRun(store, a_run(definition, run_input=list(range(items))))
        await run.begins()
        yield run


async def some(run: StoredRun, count: int) -> Cost:
    return typical([await run.completes("done") for _ in range(count)])


async def some_cold(run: StoredRun) -> Cost:
    """The same by an engine that has the run not in memory."""
    run.is_cold = True
    cost = await some(run, COLD)
    run.is_cold = False
    return cost


@pytest.mark.parametrize("concurrency", [100, ITEMS])
async def test_the_last_events_of_ten_thousand_items_cost_as_much_as_the_first(
    postgres_url: str, concurrency: int
) -> None:
    async with a_map(postgres_url, concurrency) as run:
        first = await some(run, MEASURED)
        done = MEASURED
        # The last that have another item begin; where all have begun, the last but for the join.
        last_place = ITEMS - (concurrency if concurrency < ITEMS else 1)
        await run.complete_many(last_place - done - MEASURED, "done")
        last = await some(run, MEASURED)
        measured(f"{concurrency} at a time: first {first}, last {last}")
        assert last.written == first.written
        assert last.read <= first.read + 1
        assert is_as_cheap(last, first)
        await run.complete_many(ITEMS - last_place - 1, "done")
        join = await run.completes("done")
        measured(f"the join: {join}")
        assert run.run.status is RunStatus.COMPLETED
        # Each item and its step once, and a few.
        assert join.read <= 2 * ITEMS + 50
        assert join.written <= 20
        assert run.largest <= run.run.limits.transitions_per_decision_max


async def test_an_event_among_ten_thousand_items_costs_as_much_as_among_a_hundred(
    postgres_url: str,
) -> None:
    async with a_map(postgres_url, 20, items=200) as few, a_map(postgres_url, 20) as many:
        small, large = await some(few, MEASURED), await some(many, MEASURED)
        assert large.written == small.written
        assert large.read <= small.read + 1
        assert is_as_cheap(large, small)


async def test_an_engine_that_has_just_started_reads_what_is_open_and_no_more(
    postgres_url: str,
) -> None:
    async with a_map(postgres_url, 20) as run:
        first = await some_cold(run)
        await run.complete_many(ITEMS // 2, "done")
        last = await some_cold(run)
        measured(f"not in memory, 20 at a time: first {first}, last {last}")
        # The open items and their steps, each by its row of open_step, and a few.
        assert first.read <= 4 * (2 * 20 + 1)
        assert last.read <= first.read + 5
        assert last.written == first.written


async def test_ten_thousand_open_items_are_paused_resumed_and_cancelled_in_slices(
    postgres_url: str,
) -> None:
    async with a_map(postgres_url, ITEMS) as run:
        assert len(run.dispatches) == ITEMS
        for event in (PauseRequested, ResumeRequested, CancelRequested):
            await run.happens(event(seed=run.seed(), cause=a_cause()))
            await run.goes_on()
        assert run.run.status is RunStatus.CANCELLED
        assert run.largest <= run.run.limits.transitions_per_decision_max + 3


@pytest.mark.parametrize("items", [1_000, pytest.param(ITEMS, marks=pytest.mark.slow)])
async def test_undoing_many_items_costs_the_same_from_the_first_to_the_last(
    postgres_url: str, items: int
) -> None:
    step = a_task("pick", input="${ item }", compensate={"task": "unpick"})
    async with a_map(postgres_url, 100, items=items, step=step) as run:
        await run.complete_many(items - 100, "done")
        cancel = CancelRequested(seed=run.seed(), cause=a_cause(), compensate=True)
        await run.happens(cancel)
        await run.goes_on()
        await run.complete_many(100, "done")  # what was being cancelled had been done
        assert run.run.status is RunStatus.COMPENSATING
        first = await some(run, MEASURED)
        await run.complete_many(items - 2 * MEASURED - 1, "undone")
        last = await some(run, MEASURED)
        measured(f"undoing: first {first}, last {last}")
        assert last.written == first.written
        assert last.read <= first.read + 5
        assert is_as_cheap(last, first)
        await run.completes("undone")
        assert run.run.compensation is RunStatus.COMPENSATED
