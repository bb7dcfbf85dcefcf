-- How many undone dispatches go before each of these, counted up to a limit. It walks the index of
-- dispatches without a sign of a worker, of which there is a window's worth a queue at most.
SELECT (
  SELECT count(*) FROM (
    SELECT 1 FROM open_step
    WHERE open_step.token IS NOT NULL AND NOT open_step.reported
      AND open_step.status = 'dispatched'
      AND open_step.queue = wanted.queue
      AND (open_step.level < wanted.level
        OR (open_step.level = wanted.level AND open_step.dispatched_at < wanted.dispatched_at))
    LIMIT @limit::bigint
  ) AS earlier
) AS ahead
FROM unnest(@queue::text[], @level::smallint[], @dispatched_at::timestamptz[])
  WITH ORDINALITY AS wanted (queue, level, dispatched_at, place)
ORDER BY wanted.place;
