-- The open step of a run whose live token this is.
SELECT
  open_step.run_id, open_step.path, open_step.token, open_step.queue, open_step.level,
  open_step.dispatched_at, open_step.status, open_step.cancelling,
  (SELECT true FROM outbox
   WHERE outbox.token = open_step.token AND outbox.run_id = open_step.run_id
   LIMIT 1) IS NOT NULL AS in_outbox
FROM open_step
WHERE run_id = @run_id::uuid AND token = @token::text;
