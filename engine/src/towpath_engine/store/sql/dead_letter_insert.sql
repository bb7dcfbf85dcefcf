-- Keep messages for a person, and count the rows that are new.
WITH fresh AS (
  INSERT INTO dead_letter (
    id, at, reason, message, subject, headers, body, run_id, step)
  SELECT
    id, at, reason, message, subject, headers, body, run_id, step
  FROM unnest(
  @id::uuid[], @at::timestamptz[], @reason::text[], @message::text[], @subject::text[],
    @headers::text[], @body::bytea[], @run_id::text[], @step::text[]
  ) AS t (
    id, at, reason, message, subject, headers, body, run_id, step)
  ON CONFLICT (id) DO NOTHING
  RETURNING octet_length(body) + octet_length(headers) AS bytes
)
UPDATE dead_letter_total SET
  row_count = row_count + (SELECT count(*) FROM fresh),
  byte_count = byte_count + (SELECT coalesce(sum(bytes), 0) FROM fresh);
