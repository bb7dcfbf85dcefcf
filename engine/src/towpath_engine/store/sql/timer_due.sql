-- Timers whose instant has come, the earliest first.
SELECT run_id, path, due_at, preemptible
FROM timer
WHERE due_at <= @before::timestamptz
ORDER BY due_at, run_id, path
LIMIT @limit::bigint;
