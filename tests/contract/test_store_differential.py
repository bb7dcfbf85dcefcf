"""Random sequences through both stores: the one over dictionaries is the oracle."""

from collections import Counter

import pytest

from tests.support.store_operations import Operations, snapshot
from tests.support.stores import a_store
from towpath_engine.store.transaction import StoreCaps

STEPS = 120
CAPS = StoreCaps(dead_letter_rows_max=20, log_bytes_max=100)


@pytest.mark.parametrize("seed", range(6))
async def test_both_stores_answer_the_same_to_the_same_operations(
    postgres_url: str, seed: int
) -> None:
    seen: Counter[str] = Counter()
    async with (
        a_store("memory", postgres_url, caps=CAPS) as oracle,
        a_store("postgres", postgres_url, caps=CAPS) as postgres,
    ):
        operations = Operations(oracle, seed)
        for number in range(STEPS):
            name, operation = await operations.next()
            expected, found = await operation(oracle), await operation(postgres)
            assert found == expected, f"seed {seed}, operation {number}, {name}"
            seen[str(expected) if isinstance(expected, str) else name] += 1
            if number % 20 == 19:
                run_ids = operations.run_ids
                assert await snapshot(postgres, run_ids) == await snapshot(oracle, run_ids), (
                    f"seed {seed}, after operation {number}"
                )
    assert seen["_batch"] > STEPS / 5, f"most batches are legal: {seen}"
