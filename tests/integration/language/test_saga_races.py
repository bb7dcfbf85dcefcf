"""Runs that are cancelled at any moment, while workers are busy: every effect is taken back."""

import asyncio
import random
from typing import Any

from tests.support.card_shop import CardShop
from tests.support.eventually import let_pass
from tests.support.wire_client import WireClient

Json = Any

RUNS = 60
LONGEST_SECONDS = 0.6
UNDOABLE: Json = {"task": "do", "compensate": {"task": "undo"}}
WIDE: Json = {
    "workflow": "wide",
    "steps": [
        {"name": "first", **UNDOABLE},
        {
            "name": "both",
            "parallel": {
                "branches": {
                    "one": [{"name": "a", **UNDOABLE}, {"name": "b", **UNDOABLE}],
                    "many": [
                        {
                            "name": "lines",
                            "map": {
                                "items": "${ [1, 2, 3, 4, 5, 6] }",
                                "max_concurrency": 3,
                                "steps": [{"name": "line", **UNDOABLE}],
                            },
                        }
                    ],
                }
            },
        },
        {"name": "last", "wait": {"signal": "never"}},
    ],
}


async def _cancelled(wire: WireClient, chance: random.Random) -> str:
    """A run that was cancelled at some moment."""
    run_id = await wire.start("wide")
    await let_pass(chance.uniform(0, LONGEST_SECONDS))
    answer = await wire.api("run.cancel", run_id=run_id, compensate=True)
    assert answer["status"] in {"compensating", "cancelled"}
    return run_id


async def test_of_runs_cancelled_at_any_moment_every_effect_is_taken_back_once(
    wire: WireClient,
) -> None:
    chance = random.Random(2)
    await wire.deploy(WIDE)
    shop = CardShop(wire)
    shop.allow(RUNS * 100)
    shop.open(slots=4)
    run_ids = await asyncio.gather(*(_cancelled(wire, chance) for _ in range(RUNS)))
    for run_id in run_ids:
        result = await wire.result(run_id)
        done = [key.removesuffix("/0") for key in shop.done() if key.startswith(run_id)]
        undone = [key for key in shop.undone() if key.startswith(run_id)]
        assert sorted(undone) == sorted(done)
        assert (result["status"], result.get("compensation")) == (
            "cancelled",
            "compensated" if done else None,
        )
    assert 0 < len(shop.undone()) < RUNS * 9
    await shop.close()
