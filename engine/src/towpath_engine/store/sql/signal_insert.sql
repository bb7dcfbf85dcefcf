-- Keep signals, some of them taken by a wait at once.
INSERT INTO signal (
  run_id, number, name, payload, message_id, sent_by, received_at, consumed_by)
SELECT
  run_id, number, name, payload, message_id, sent_by, received_at, consumed_by
FROM unnest(
  @run_id::uuid[], @number::integer[], @name::text[], @payload::bytea[], @message_id::text[],
  @sent_by::text[], @received_at::timestamptz[], @consumed_by::text[]
) AS fresh (
  run_id, number, name, payload, message_id, sent_by, received_at, consumed_by)
ORDER BY run_id, number;
