-- The open steps of a run in order of path, without inputs and outputs; not those that are open only
-- because of what is open below them.
SELECT
  step.run_id, step.path, step.kind, step.status, step.visit, step.attempt, step.iteration,
  step.release_count, step.revival_count, step.token, step.dispatch_no, step.queue, step.task,
  NULL::bytea AS input, NULL::bytea AS output, NULL::bytea AS last_output, step.error,
  step.last_error, NULL::bytea AS progress, step.worker_id, step.waiting_for, step.held_by,
  step.signal, step.wake_at, step.ready_at, step.dispatched_at, step.started_at, step.settled_at,
  step.dispatch_deadline_at, step.attempt_deadline_at, step.heartbeat_deadline_at,
  step.step_deadline_at, step.parts, NULL::bytea AS errors, step.last_step, step.reached,
  step.undo_below, step.child_run_id, step.child_key
FROM open_step
JOIN step ON step.run_id = open_step.run_id AND step.path = open_step.path
WHERE open_step.run_id = @run_id::uuid
  AND step.kind NOT IN ('branch', 'item')
  AND NOT (step.kind IN ('parallel', 'map') AND step.status = 'running')
ORDER BY open_step.path
LIMIT @limit::bigint;
