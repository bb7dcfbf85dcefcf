"""Whatever the core decides, both stores take and give back: random histories, saved as decided."""

from datetime import datetime, timedelta

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.builders import BEGIN, a_run
from tests.support.census import count_runs_without_reason
from tests.support.histories import Tally, World, definitions
from tests.support.store_builders import LIMITS, an_id
from tests.support.stores import a_store
from towpath_engine.core.effects import Decision, Verdict
from towpath_engine.core.events import Event
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run, Step
from towpath_engine.core.parse import parse_definition
from towpath_engine.core.paths import ROOT, owner_of
from towpath_engine.core.states import OPEN_STEP, SETTLED_RUN
from towpath_engine.services.clock import Clock, Identity
from towpath_engine.services.draft import Drafting, RunDraft
from towpath_engine.store.interface import BatchWrite, LoadRequest, Store

HISTORIES = 40
DECISIONS_MAX = 60
FAR = BEGIN + timedelta(days=10_000)

Recorded = tuple[Decision, datetime]


class RecordingWorld(World):
    """A world that remembers each decision with its instant."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, Tally())
        self.recorded: list[Recorded] = []

    def happens(self, event: Event) -> Decision:
        decision = super().happens(event)
        if decision.verdict is Verdict.APPLIED:
            self.recorded.append((decision, self.now))
        return decision


def record_histories() -> list[tuple[Run, list[Recorded]]]:
    """Some histories from their first decision on, each of a run of its own."""
    found: list[tuple[Run, list[Recorded]]] = []

    @settings(
        max_examples=HISTORIES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(definitions(), st.lists(st.integers(0, 999), min_size=10, max_size=40))
    def record(document: dict[str, object], numbers: list[int]) -> None:
        start_at = BEGIN + timedelta(seconds=30) if numbers[0] % 3 == 0 else None
        run = a_run(
            parse_definition(document),
            run_input={"n": len(numbers)},
            key=f"k-{len(found)}",
            start_at=start_at,
            limits=CoreLimits(transitions_per_decision_max=5, releases_in_a_row_max=4),
        )
        world = RecordingWorld(replace(run, id=an_id(len(found) + 1)))
        world.begins()
        for number in numbers:
            world.act(number)
        world.calm()
        found.append((run, world.recorded[:DECISIONS_MAX]))

    record()
    return found


class Replay:
    """One run in one store, decision by decision."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._identity = Identity(Clock(store))
        self._steps: dict[str, Step] = {}
        self._current: Run | None = None

    async def apply(self, recorded: Recorded, *, reload: bool) -> None:
        """Save the decision as a batch would, and compare all that is stored with it."""
        decision, at = recorded
        before = self._current
        draft = RunDraft(before or decision.run, None if before is None else before.version)
        draft.add(decision, at)
        draft.announcements.clear()  # what an event's message looks like is not the store's matter
        drafting = Drafting(prefix="towpath", identity=self._identity, grace=timedelta(seconds=5))
        saved = draft.to_saved(drafting, at)
        async with self._store.transaction() as tx:
            assert await tx.save(BatchWrite(runs=[saved])) == {saved.run.id}
        self._steps.update({step.path: step for step in saved.steps})
        loaded = await self._load(saved.run)
        assert loaded == self._expected(saved.run)
        self._current = loaded if reload else saved.run
        await self._check_timers(saved.run)

    async def _load(self, run: Run) -> Run:
        paths = _referenced(run)
        if run.last_step is not None:
            paths.add(run.last_step)
        request = LoadRequest(run_id=run.id, definition=run.definition, paths=frozenset(paths))
        async with self._store.transaction() as tx:
            return (await tx.load_runs([request]))[run.id]

    def _expected(self, run: Run) -> Run:
        wanted = _referenced(run) | {run.last_step}
        steps = {
            path: step
            for path, step in sorted(self._steps.items())
            if path in wanted or step.status in OPEN_STEP
        }
        return replace(run, steps=steps, limits=LIMITS)

    async def _check_timers(self, run: Run) -> None:
        """Every stored instant has a timer that fires no later; a settled run has none."""
        armed = {
            row.path: row.due_at
            for row in await self._store.due_timers(FAR, 1000)
            if row.run_id == run.id
        }
        if run.status in SETTLED_RUN:
            assert armed == {}
            return
        instants = {path: step.due_at for path, step in self._steps.items()}
        for path, due_at in [*instants.items(), (None, run.due_at)]:
            if due_at is not None:
                assert armed[path] <= due_at, path
            else:
                assert path not in armed, path


def _referenced(run: Run) -> set[str]:
    return {place for place in run.definition.referenced if owner_of(place) == ROOT}


async def test_whatever_the_core_decides_comes_back_as_it_was_decided(
    kind: str, postgres_url: str
) -> None:
    histories = record_histories()
    decisions = 0
    async with a_store(kind, postgres_url) as store:
        for _, recorded in histories:
            replay = Replay(store)
            for number, item in enumerate(recorded):
                await replay.apply(item, reload=number % 3 == 0)
                assert await count_runs_without_reason(store) == 0
            decisions += len(recorded)
            last = recorded[-1][0].run
            history = await store.past.history(last.id, 0, 10_000, bytes_max=2**40)
            written = [row for decision, _ in recorded for row in decision.transitions]
            assert history == written
            assert [row.seq for row in history] == list(range(1, last.seq + 1))
    assert len(histories) >= HISTORIES
    assert decisions > 3 * HISTORIES
