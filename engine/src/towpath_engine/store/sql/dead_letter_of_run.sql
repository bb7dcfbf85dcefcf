-- The newest dead letter of each step of a run.
SELECT DISTINCT ON (step) step, id
FROM dead_letter
WHERE run_id = @run_id::text
ORDER BY step, id DESC
LIMIT @limit::bigint;
