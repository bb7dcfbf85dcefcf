-- Parked signals whose run or key exists by now, or whose time is over, oldest first.
SELECT
  id, run_id, workflow, key, name, payload, message_id, sent_by, received_at, expires_at
FROM parked_signal
WHERE expires_at <= now()
  OR EXISTS (SELECT 1 FROM run WHERE run.id = parked_signal.run_id)
  OR EXISTS (
    SELECT 1 FROM run_key
    WHERE run_key.workflow = parked_signal.workflow AND run_key.key = parked_signal.key)
ORDER BY received_at, id
LIMIT @limit::bigint;
