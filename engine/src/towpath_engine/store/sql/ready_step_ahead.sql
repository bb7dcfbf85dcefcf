-- How many held steps come before each of these, counted up to a limit: by level, then time.
SELECT (
  SELECT count(*) FROM (
    SELECT 1 FROM ready_step
    WHERE ready_step.held_by = wanted.held_by
      AND (ready_step.level, ready_step.ready_at) < (wanted.level, wanted.ready_at)
    LIMIT @limit::bigint
  ) AS earlier
) AS ahead
FROM unnest(@held_by::text[], @level::smallint[], @ready_at::timestamptz[])
  WITH ORDINALITY AS wanted (held_by, level, ready_at, place)
ORDER BY wanted.place;
