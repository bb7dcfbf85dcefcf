-- Timers whose instant has come, the earliest first, behind the last one of the page before.
SELECT run_id, path, due_at, preemptible
FROM timer
WHERE due_at <= @before::timestamptz
  AND (due_at, run_id, path)
    > (@after_due_at::timestamptz, @after_run_id::uuid, @after_path::text)
ORDER BY due_at, run_id, path
LIMIT @limit::bigint;
