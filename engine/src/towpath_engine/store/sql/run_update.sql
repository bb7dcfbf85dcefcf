-- Write decided runs. The fence: a row whose version is not the expected one any more is neither
-- changed nor returned. What never changes after the start is not written, and metadata that the
-- decision left alone is kept without being sent.
UPDATE run SET
  status = changed.status,
  version = changed.version,
  seq = changed.seq,
  metadata = CASE WHEN changed.keep_metadata THEN run.metadata ELSE changed.metadata END,
  output = changed.output,
  error = changed.error,
  cancelled_by = changed.cancelled_by,
  cancel_reason = changed.cancel_reason,
  start_at = changed.start_at,
  started_at = changed.started_at,
  settled_at = changed.settled_at,
  deadline_at = changed.deadline_at,
  last_at = changed.last_at,
  cursor = changed.cursor,
  last_step = changed.last_step,
  signal_count = changed.signal_count,
  reached = changed.reached
FROM unnest(
  @id::uuid[], @expected::bigint[], @status::text[], @version::bigint[], @seq::bigint[],
  @metadata::bytea[], @output::bytea[], @error::bytea[], @cancelled_by::text[],
  @cancel_reason::text[], @start_at::timestamptz[], @started_at::timestamptz[],
  @settled_at::timestamptz[], @deadline_at::timestamptz[], @last_at::timestamptz[],
  @cursor::text[], @last_step::text[], @signal_count::integer[], @reached::bytea[],
  @keep_metadata::boolean[]
) AS changed (
  id, expected, status, version, seq, metadata, output, error, cancelled_by, cancel_reason,
  start_at, started_at, settled_at, deadline_at, last_at, cursor, last_step, signal_count,
  reached, keep_metadata)
WHERE run.id = changed.id AND run.version = changed.expected
RETURNING run.id;
