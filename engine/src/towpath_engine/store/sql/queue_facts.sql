-- How full each of these queues is and who waits for it, as of one instant: undone dispatches, counted
-- up to a limit, and the most urgent level of what its window (@windows) and its pause (@pauses) hold
-- back.
SELECT
  wanted.name,
  queue.created_at,
  (SELECT count(*) FROM (
    SELECT 1 FROM open_step
    WHERE open_step.queue = wanted.name AND open_step.token IS NOT NULL
    LIMIT @limit::bigint
  ) AS live) AS undone,
  (SELECT ready_step.level FROM ready_step
   WHERE ready_step.held_by = wanted.windowed
   ORDER BY ready_step.level LIMIT 1) AS window_level,
  (SELECT ready_step.level FROM ready_step
   WHERE ready_step.held_by = wanted.paused
   ORDER BY ready_step.level LIMIT 1) AS pause_level
FROM unnest(@names::text[], @windows::text[], @pauses::text[]) AS wanted (name, windowed, paused)
LEFT JOIN queue ON queue.name = wanted.name;
