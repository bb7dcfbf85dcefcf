-- How many undone dispatches go before each of these, counted up to a limit: those of a more urgent
-- level, and of its own the earlier ones; of one instant by run and path, as they are published. It
-- walks the dispatches of the queue, of which there is a window's worth at most.
SELECT (
  SELECT count(*) FROM (
    SELECT 1 FROM open_step
    WHERE open_step.token IS NOT NULL AND NOT open_step.reported
      AND open_step.status = 'dispatched'
      AND open_step.queue = wanted.queue
      AND (open_step.level, open_step.dispatched_at, open_step.run_id, open_step.path)
        < (wanted.level, wanted.dispatched_at, wanted.run_id, wanted.path)
    LIMIT @limit::bigint
  ) AS earlier
) AS ahead
FROM unnest(
  @queue::text[], @level::smallint[], @dispatched_at::timestamptz[], @run_id::uuid[], @path::text[]
) WITH ORDINALITY AS wanted (queue, level, dispatched_at, run_id, path, place)
ORDER BY wanted.place;
