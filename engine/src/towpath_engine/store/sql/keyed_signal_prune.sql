-- Forget identities older than seven days, in bounded batches.
DELETE FROM keyed_signal
WHERE (workflow, key, name, message_id) IN (
  SELECT workflow, key, name, message_id
  FROM keyed_signal
  WHERE taken_at <= now() - interval '7 days'
  ORDER BY taken_at
  LIMIT @limit::bigint
  FOR UPDATE SKIP LOCKED);
