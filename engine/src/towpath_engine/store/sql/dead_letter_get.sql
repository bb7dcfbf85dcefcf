-- Whole dead letters.
SELECT id, at, reason, message, subject, headers, body, run_id, step
FROM dead_letter
WHERE id = ANY(@ids::uuid[]);
