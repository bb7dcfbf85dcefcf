-- Park signals whose run or key does not exist yet.
INSERT INTO parked_signal (
  id, run_id, workflow, key, name, payload, message_id, sent_by, received_at, expires_at)
SELECT
  id, run_id, workflow, key, name, payload, message_id, sent_by, received_at, expires_at
FROM unnest(
  @id::uuid[], @run_id::uuid[], @workflow::text[], @key::text[], @name::text[],
  @payload::bytea[], @message_id::text[], @sent_by::text[], @received_at::timestamptz[],
  @expires_at::timestamptz[]
) AS fresh (
  id, run_id, workflow, key, name, payload, message_id, sent_by, received_at, expires_at)
ON CONFLICT (id) DO NOTHING;
