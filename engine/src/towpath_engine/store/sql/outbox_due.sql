-- Messages to publish again, moved on by @seconds so that two sweeps do not collide. A dispatch
-- goes only while its token is the step's current one and still dispatched, and not while it is
-- being cancelled; others are deleted.
-- Rows that another sweep or batch holds are left to it.
WITH due AS MATERIALIZED (
  SELECT
    outbox.id,
    outbox.token IS NULL OR (
      SELECT true FROM open_step
      WHERE open_step.run_id = outbox.run_id AND open_step.token = outbox.token
        AND open_step.status = 'dispatched' AND NOT open_step.cancelling
      LIMIT 1) IS NOT NULL AS wanted
  FROM outbox
  WHERE outbox.publish_after <= @before::timestamptz
  ORDER BY outbox.publish_after
  LIMIT @limit::bigint
  FOR UPDATE OF outbox SKIP LOCKED
), dead AS (
  DELETE FROM outbox USING due WHERE outbox.id = due.id AND NOT due.wanted
)
UPDATE outbox
SET publish_after = @before + make_interval(secs => @seconds::double precision)
FROM due
WHERE outbox.id = due.id AND due.wanted
RETURNING
  outbox.id, outbox.run_id, outbox.token, outbox.subject, outbox.msg_id, outbox.headers,
  outbox.body, outbox.publish_after;
