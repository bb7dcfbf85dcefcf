"""Random operations on a store, made once and applied to several: the differential test's fuel.

An operation is built from what the oracle holds, so that most are legal, and carries every random
choice inside itself, so that both stores are asked exactly the same.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from tests.support.census import count_open_runs, count_runs_without_reason
from tests.support.store_builders import (
    DEFINITION,
    a_change,
    a_run,
    a_signal,
    a_start,
    a_step,
    an_id,
    an_outbox_row,
    completed,
    later,
    load,
)
from towpath_engine.core.model import Failure, Run, Step
from towpath_engine.core.states import SETTLED_RUN, RunStatus, StepStatus, WaitReason
from towpath_engine.store.errors import StoreRejected
from towpath_engine.store.interface import (
    BatchWrite,
    ConsumedSignal,
    KeyClaim,
    KeyedSignalId,
    LoadRequest,
    ParkedSignal,
    RunFilter,
    SavedRun,
    SignalId,
    Store,
)
from towpath_engine.store.records import DeadLetter, LogLine

Operation = Callable[[Store], Awaitable[Any]]

PATHS = ("a", "b", "c[1]/x")
KEYS = ("k1", "k2")
HOLDERS = ("run", "queue:default", "window:default", "task:t")
VALUES = (None, b"null", b"1.0", b"9007199254740993", b'{"a":"\xc3\xa9"}')


class DeliberateError(Exception):
    """Ends a transaction that must leave nothing."""


def _fail_if(wanted: object) -> None:
    if wanted:
        raise DeliberateError


class Operations:
    """Makes operations from `oracle`'s state and one seed."""

    def __init__(self, oracle: Store, seed: int) -> None:
        self._oracle = oracle
        self._random = random.Random(seed)
        self._ids = 0
        self._clock = 0.0
        self.run_ids: list[str] = []

    def _new_id(self) -> str:
        self._ids += 1
        return an_id(self._ids)

    async def next(self) -> tuple[str, Operation]:
        """The name of an operation, and the operation."""
        self._clock += self._random.choice((0, 1, 5))
        make = self._random.choices(
            [self._batch, self._claims, self._sweep, self._rearm, self._messages, self._read],
            weights=[10, 3, 2, 1, 3, 2],
        )[0]
        return make.__name__, await make()

    # Batches of runs

    async def _batch(self) -> Operation:
        items = [self._start() for _ in range(self._random.choice((0, 0, 1, 2)))]
        count = min(len(self.run_ids), self._random.choice((1, 2, 3)))
        changed = self._random.sample(self.run_ids, count)
        items += [await self._change(run_id) for run_id in changed]
        self._random.shuffle(items)
        self.run_ids += [item.run.id for item in items if item.expected_version is None]
        fails = self._random.random() < 0.1
        batch = BatchWrite(runs=items, published=self._some_outbox_ids())

        async def operation(store: Store) -> Any:
            try:
                async with store.transaction() as tx:
                    written = await tx.save(batch)
                    _fail_if(fails)
            except DeliberateError:
                return "rolled back"
            except StoreRejected as fault:
                return f"rejected {fault.constraint}"
            return written

        return operation

    def _some_outbox_ids(self) -> list[str]:
        return [an_id(self._random.randint(1, self._ids + 1)) for _ in range(2)]

    def _start(self) -> SavedRun:
        run = a_run(
            id=self._new_id(),
            created_at=later(self._clock),
            started_at=later(self._clock),
            last_at=later(self._clock),
            key=self._random.choice((None, *KEYS)),
            request_id=self._random.choice((None, None, "r1", "r2")),
            tags=self._random.choice(((), ("x",), ("x", "y"))),
            priority=self._random.randint(0, 3),
            deadline_at=self._random.choice((None, later(self._clock + 40))),
            seq=1,
        )
        return a_start(run, *self._steps({}), outbox=self._outbox(run))

    async def _change(self, run_id: str) -> SavedRun:
        before = await load(self._oracle, run_id, PATHS)
        if before is None:
            return self._start()
        if self._random.random() < 0.1:
            before = replace(before, version=max(0, before.version - 1))  # a stale copy
        steps = self._steps(before.steps)
        changes: dict[str, Any] = {
            "seq": before.seq + self._random.randint(0, 2),
            "last_at": later(self._clock),
            "metadata": self._random.choice((before.metadata, b'{"n":1}')),
        }
        if self._random.random() < 0.2 and before.status not in SETTLED_RUN:
            changes |= {"status": RunStatus.FAILED, "settled_at": later(self._clock)}
        number = before.signal_count + 1
        rows: dict[str, Any] = {
            "outbox": self._outbox(before),
            "revoked": [s.token for s in before.steps.values() if s.token][:1],
            "signals": [
                a_signal(
                    number, before,
                    message_id=f"m{self._random.randint(1, 30)}",
                    consumed_by=self._random.choice((None, "a")),
                )
            ] if self._random.random() < 0.4 else [],
            "consumed": [
                ConsumedSignal(run_id=run_id, number=kept.number, consumed_by="b")
                for kept in before.kept[:1]
            ],
            "logs": [
                LogLine(
                    run_id=run_id, path=self._random.choice(PATHS), attempt=1, token="t",
                    at=later(self._clock), lines=b"x" * self._random.randint(1, 60),
                )
            ] if self._random.random() < 0.4 else [],
        }  # fmt: skip
        changes["signal_count"] = number if rows["signals"] else before.signal_count
        known = self._random.random() < 0.6
        return a_change(before, *steps, known=known, **changes, **rows)

    def _outbox(self, run: Run) -> list[Any]:
        token = self._random.choice((None, "token-a-1", "token-b-1"))
        at = later(self._clock + 5)
        return [an_outbox_row(0, run, id=self._new_id(), token=token, publish_after=at)]

    def _steps(self, before: Any) -> list[Step]:
        paths = self._random.sample(PATHS, self._random.randint(0, len(PATHS)))
        return [self._step(path, before.get(path)) for path in sorted(paths)]

    def _step(self, path: str, before: Step | None) -> Step:
        visit = 1 if before is None else before.visit
        if before is not None and before.settled_at is not None:
            visit += self._random.choice((0, 1, 1, 1, 1, 1))  # 0 is refused
        base = a_step(
            path,
            visit=visit,
            token=f"token-{path}-{visit}",
            dispatched_at=later(self._clock),
            **{name: self._random.choice(VALUES) for name in ("input", "progress", "last_output")},
        )
        soon = later(self._clock + self._random.randint(1, 20))
        resting: dict[str, Any] = {"status": StepStatus.WAITING, "token": None}
        return self._random.choice((
            base,
            replace(base, dispatch_deadline_at=soon),
            replace(base, status=StepStatus.RUNNING, worker_id="w", attempt_deadline_at=soon),
            replace(base, **resting, waiting_for=WaitReason.BACKOFF, wake_at=soon),
            replace(base, **resting, waiting_for=WaitReason.SIGNAL, signal="s", wake_at=soon),
            replace(base, **resting, waiting_for=WaitReason.SIGNAL, signal="s"),
            replace(
                base, status=StepStatus.READY, token=None, held_by=self._random.choice(HOLDERS)
            ),
            completed(base, output=self._random.choice(VALUES), settled_at=later(self._clock)),
            completed(
                base, status=StepStatus.FAILED, output=None,
                error=Failure(type="E", message="m", details=self._random.choice(VALUES)),
            ),
        ))  # fmt: skip

    # Other operations

    async def _claims(self) -> Operation:
        claims = [
            KeyClaim(
                run_id=self._new_id(),
                workflow="order",
                key=self._random.choice((None, *KEYS)),
                request_id=self._random.choice((None, "r1", "r2", "r3")),
            )
            for _ in range(self._random.randint(1, 4))
        ]
        self.run_ids += [claim.run_id for claim in claims]

        async def operation(store: Store) -> Any:
            async with store.transaction() as tx:
                holders = await tx.claim_keys(claims)
                runs = [
                    a_start(a_run(id=claim.run_id, key=claim.key, request_id=claim.request_id))
                    for claim, holder in zip(claims, holders, strict=True)
                    if holder.run_id == claim.run_id
                ]
                return holders, await tx.save(BatchWrite(runs=runs))

        return operation

    async def _sweep(self) -> Operation:
        before = later(self._clock + self._random.choice((0, 5)))

        async def operation(store: Store) -> Any:
            return await store.due_outbox(before, 1000), await store.due_timers(before, 1000)

        return operation

    async def _rearm(self) -> Operation:
        run_ids = self._random.sample(self.run_ids, min(2, len(self.run_ids)))
        due_at = self._random.choice((None, later(self._clock + 3)))
        timers = [(run_id, self._random.choice((None, *PATHS)), due_at) for run_id in run_ids]

        async def operation(store: Store) -> Any:
            async with store.transaction() as tx:
                await tx.lock_runs(run_ids)
                await tx.rearm_timers(timers)

        return operation

    async def _messages(self) -> Operation:
        keyed = KeyedSignalId(workflow="order", key="k1", name="s", message_id=str(self._ids % 5))
        parked = ParkedSignal(
            id=self._new_id(), run_id=self._random.choice(self.run_ids or [an_id(999)]),
            name="s", payload=b"1", message_id="m", received_at=later(self._clock),
            expires_at=later(10**9),
        )  # fmt: skip
        letter = DeadLetter(
            id=self._new_id(), at=later(self._clock), reason="r", message="m", subject="s",
            headers={}, body=b"1",
        )  # fmt: skip
        taken = self._random.sample(self.run_ids, min(3, len(self.run_ids)))

        async def operation(store: Store) -> Any:
            async with store.transaction() as tx:
                known = await tx.known_keyed_signals([keyed])
                found = await tx.take_parked(taken, [("order", "k1")])
                await tx.save(
                    BatchWrite(
                        keyed_signals=[(keyed, an_id(1))],
                        parked=[parked],
                        dead_letters=[letter],
                        requests=[("order", "r3", an_id(1))],
                    )
                )
                return known, found

        return operation

    async def _read(self) -> Operation:
        run_id = self._random.choice(self.run_ids or [an_id(999)])
        where = self._random.choice((
            RunFilter(), RunFilter(key="k1"), RunFilter(tag="x", status="running"),
            RunFilter(status="failed"), RunFilter(workflow="order", created_from=later(9)),
        ))  # fmt: skip

        async def operation(store: Store) -> Any:
            page = await store.list_runs(where, None, 4)
            rest = await store.list_runs(where, page.next_cursor, 4)
            return (
                page,
                rest,
                await store.get_steps(run_id, "a", 10),
                await store.run_statuses([run_id]),
                await store.open_dispatches(later(self._clock), (run_id, "a"), 5),
            )

        return operation


async def snapshot(store: Store, run_ids: Sequence[str]) -> dict[str, Any]:
    """All that can be read of a store, but for its clock."""
    everything: dict[str, Any] = {
        "open": await count_open_runs(store),
        "no reason": await count_runs_without_reason(store),
        "timers": await store.due_timers(later(10**8), 10**6),
        "dispatches": await store.open_dispatches(later(10**8), None, 10**6),
        "letters": await store.letters.page(None, 10**6, body_bytes_max=10**6),
        "parked": [row.id for row in await store.due_parked(10**6)],
        "runs": await store.list_runs(RunFilter(), None, 10**6),
        "backlogs": await store.admission.backlogs(1000),
        "held": [
            sorted(await store.admission.held(h, by_level=3, by_time=2), key=repr) for h in HOLDERS
        ],
        "keys": [await store.get_key("order", key) for key in KEYS],
    }
    async with store.transaction() as tx:
        requests = [
            LoadRequest(run_id=run_id, definition=DEFINITION, paths=frozenset(PATHS))
            for run_id in run_ids
        ]
        everything["loaded"] = await tx.load_runs(requests)
        everything["locked"] = await tx.lock_runs(run_ids)
        everything["signals"] = await tx.known_signals([
            SignalId(run_id=run_id, name="approved", message_id=f"m{number}")
            for run_id in run_ids for number in range(31)
        ])  # fmt: skip
        everything["held"] = await tx.find_keys([("order", key) for key in KEYS])
    for run_id in run_ids:
        # Row numbers have gaps where a transaction rolled back, and in one store only.
        logs = [line for _, line in await store.get_logs(run_id, None, 0, 1000)]
        everything[run_id] = (
            await store.past.history(run_id, 0, 1000, bytes_max=10**9),
            logs,
            await store.get_run(run_id),
        )
    return everything
