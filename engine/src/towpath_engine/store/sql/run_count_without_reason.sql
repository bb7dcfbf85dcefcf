-- Runs that are not settled and that nothing will ever move again. Stays 0: invariant 1.
SELECT count(*)
FROM run
WHERE run.status IN ('pending', 'running', 'waiting', 'compensating')
  AND run.paused_at IS NULL
  AND NOT EXISTS (
    SELECT 1 FROM open_step
    WHERE open_step.run_id = run.id
      AND (open_step.token IS NOT NULL OR open_step.signal IS NOT NULL
        OR open_step.status = 'ready'))
  AND NOT EXISTS (SELECT 1 FROM timer WHERE timer.run_id = run.id);
