-- How many steps each of these holds back, counted up to a limit, and since when the first waits.
SELECT
  wanted.held_by,
  (SELECT count(*) FROM (
    SELECT 1 FROM ready_step WHERE ready_step.held_by = wanted.held_by LIMIT @limit::bigint
  ) AS first_ones) AS held,
  (SELECT ready_step.ready_at FROM ready_step
   WHERE ready_step.held_by = wanted.held_by
   ORDER BY ready_step.ready_at
   LIMIT 1) AS oldest_at
FROM unnest(@held_by::text[]) AS wanted (held_by);
