-- All steps of runs in order of path, without inputs and outputs.
SELECT
  run_id, path, kind, status, visit, attempt, iteration, release_count, revival_count, came_from,
  token, dispatch_no,
  queue, task, NULL::bytea AS input, NULL::bytea AS output, last_output, error, last_error,
  progress, worker_id, waiting_for, held_by, signal, wake_at, ready_at, dispatched_at, started_at,
  settled_at, dispatch_deadline_at, attempt_deadline_at, heartbeat_deadline_at, step_deadline_at,
  parts, NULL::bytea AS errors, last_step, reached, undo_below, child_run_id, child_key
FROM step
WHERE run_id = ANY(@run_ids::uuid[])
ORDER BY run_id, path;
