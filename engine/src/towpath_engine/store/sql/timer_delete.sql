-- Disarm timers by (run, path).
DELETE FROM timer
USING unnest(@run_id::uuid[], @path::text[]) AS void (run_id, path)
WHERE timer.run_id = void.run_id AND timer.path = void.path;
