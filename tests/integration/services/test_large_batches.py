"""A batch that is too much for one statement is applied in parts, as small as it takes."""

import asyncpg

from tests.support.counted import counted
from tests.support.engines import engine_settings, running
from tests.support.wire_client import connected

ONE = {"workflow": "one", "steps": [{"name": "only", "pass": 1}]}
RUNS = 32
# As if so many rows at once took for ever.
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT count(*) FROM fresh) > 8 THEN PERFORM pg_sleep(600); END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER slow AFTER INSERT ON step REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION slow();
"""


async def test_starts_that_are_too_many_for_one_statement_begin_in_smaller_batches(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    connection = await asyncpg.connect(postgres_url, server_settings={"search_path": schema})
    try:
        await connection.execute(SLOW)
    finally:
        await connection.close()
    settings = engine_settings(
        jetstream_url, postgres_url, prefix, schema, postgres_statement_timeout_seconds=1.0
    )
    async with running(settings) as engine, connected(settings.nats_url, prefix) as wire:
        await wire.deploy(ONE)
        items = [{"workflow": "one", "input": number} for number in range(RUNS)]
        answer = await wire.api("run.start-many", items=items)
        for started in answer["results"]:
            assert (await wire.result(started["run_id"]))["status"] == "completed"
        assert counted(engine, "batch_retried_total", reason="too_large") > 0
