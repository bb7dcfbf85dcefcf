-- The signals of a run that no wait has taken, by name: how many, and when the newest came.
SELECT name, count(*) AS kept, max(received_at) AS newest_at
FROM signal
WHERE run_id = @run_id::uuid AND consumed_by IS NULL
GROUP BY name
ORDER BY name
LIMIT @limit::bigint;
