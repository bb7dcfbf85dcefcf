-- A page of attempts that are being cancelled and that nobody may have seen, by (run, path).
SELECT
  open_step.run_id, open_step.path, open_step.token, open_step.queue, open_step.level,
  open_step.dispatched_at, open_step.status, open_step.cancelling,
  (SELECT true FROM outbox
   WHERE outbox.token = open_step.token AND outbox.run_id = open_step.run_id
   LIMIT 1) IS NOT NULL AS in_outbox
FROM open_step
WHERE cancelling AND status = 'dispatched'
  AND (run_id, path) > (@after_run_id::uuid, @after_path::text)
ORDER BY run_id, path
LIMIT @limit::bigint;
