-- Forget steps that have settled.
DELETE FROM open_step
USING unnest(@run_id::uuid[], @path::text[]) AS settled (run_id, path)
WHERE open_step.run_id = settled.run_id AND open_step.path = settled.path;
