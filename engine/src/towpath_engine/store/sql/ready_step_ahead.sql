-- How many held steps come before each of these, counted up to a limit: by level, then time, and of one
-- instant by run and path, as ready_step_page.sql takes them.
SELECT (
  SELECT count(*) FROM (
    SELECT 1 FROM ready_step
    WHERE ready_step.held_by = wanted.held_by
      AND (ready_step.level, ready_step.ready_at, ready_step.run_id, ready_step.path)
        < (wanted.level, wanted.ready_at, wanted.run_id, wanted.path)
    LIMIT @limit::bigint
  ) AS earlier
) AS ahead
FROM unnest(
  @held_by::text[], @level::smallint[], @ready_at::timestamptz[], @run_id::uuid[], @path::text[]
) WITH ORDINALITY AS wanted (held_by, level, ready_at, run_id, path, place)
ORDER BY wanted.place;
