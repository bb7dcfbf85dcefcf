-- Messages to publish once the transaction has committed.
INSERT INTO outbox (
  id, run_id, token, subject, msg_id, headers, body, publish_after)
SELECT
  id, run_id, token, subject, msg_id, headers, body, publish_after
FROM unnest(
  @id::uuid[], @run_id::uuid[], @token::text[], @subject::text[], @msg_id::text[],
  @headers::text[], @body::bytea[], @publish_after::timestamptz[]
) AS fresh (
  id, run_id, token, subject, msg_id, headers, body, publish_after)
ORDER BY id;
