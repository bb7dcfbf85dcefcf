-- Count a page of the live runs of one status, the newest first, behind the last one of the page
-- before; and how many of them nothing will ever move again, which stays 0: invariant 1.
WITH page AS (
  SELECT run.id, run.created_at, run.paused_at, run.held_by
  FROM run
  WHERE run.status = @status::text
    AND (run.created_at, run.id) < (@before_created_at::timestamptz, @before_id::uuid)
  ORDER BY run.created_at DESC, run.id DESC
  LIMIT @limit::bigint
)
SELECT
  count(*) AS runs,
  count(*) FILTER (
    WHERE page.paused_at IS NULL
      AND page.held_by IS NULL
      AND NOT EXISTS (
        SELECT 1 FROM open_step
        WHERE open_step.run_id = page.id
          AND (open_step.token IS NOT NULL OR open_step.signal IS NOT NULL
            OR open_step.child_run_id IS NOT NULL
            OR open_step.status = 'ready'))
      AND NOT EXISTS (SELECT 1 FROM timer WHERE timer.run_id = page.id)
  ) AS orphans,
  min(page.created_at) AS last_created_at,
  (SELECT id FROM page ORDER BY created_at, id LIMIT 1) AS last_id
FROM page;
