-- Note what the open steps of the saved runs are doing, in order of (run, path).
INSERT INTO open_step (
  run_id, path, status, token, queue, level, dispatched_at, reported, signal)
SELECT run_id, path, status, token, queue, level, dispatched_at, reported, signal
FROM unnest(
  @run_id::uuid[], @path::text[], @status::text[], @token::text[], @queue::text[],
  @level::smallint[], @dispatched_at::timestamptz[], @reported::boolean[], @signal::text[]
) AS fresh (run_id, path, status, token, queue, level, dispatched_at, reported, signal)
ORDER BY run_id, path
ON CONFLICT (run_id, path) DO UPDATE SET
  status = excluded.status,
  token = excluded.token,
  queue = excluded.queue,
  level = excluded.level,
  dispatched_at = excluded.dispatched_at,
  reported = excluded.reported,
  signal = excluded.signal;
