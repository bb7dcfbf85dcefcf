-- Forget workers that were not seen for long, and all but the newest. Returns how many.
WITH gone AS (
  DELETE FROM worker
  WHERE (queue, worker_id) IN (
    SELECT queue, worker_id
    FROM (
      SELECT queue, worker_id, seen_at,
        row_number() OVER (ORDER BY seen_at DESC, queue DESC, worker_id DESC) AS place
      FROM worker
    ) AS ranked
    WHERE ranked.seen_at < @before::timestamptz OR ranked.place > @workers_max::bigint
  )
  RETURNING 1
)
SELECT count(*) FROM gone;
