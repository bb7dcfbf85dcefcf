-- A page of dead letters, newest first.
SELECT
  id, at, reason, message, subject, headers, body, run_id, step
FROM dead_letter
WHERE @before::uuid IS NULL OR id < @before
ORDER BY id DESC
LIMIT @limit::bigint;
