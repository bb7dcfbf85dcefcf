-- Write whole steps, new or not, in order of (run, path). A settled step can't be changed within
-- its visit: a trigger refuses it. The caller holds the runs.
INSERT INTO step (
  run_id, path, kind, status, visit, attempt, iteration, release_count, token, dispatch_no,
  queue, task, input, output, last_output, error, last_error, progress, worker_id, waiting_for,
  signal, wake_at, ready_at, dispatched_at, started_at, settled_at, dispatch_deadline_at,
  attempt_deadline_at, heartbeat_deadline_at, step_deadline_at)
SELECT
  run_id, path, kind, status, visit, attempt, iteration, release_count, token, dispatch_no,
  queue, task, input, output, last_output, error, last_error, progress, worker_id, waiting_for,
  signal, wake_at, ready_at, dispatched_at, started_at, settled_at, dispatch_deadline_at,
  attempt_deadline_at, heartbeat_deadline_at, step_deadline_at
FROM unnest(
  @run_id::uuid[], @path::text[], @kind::text[], @status::text[], @visit::integer[],
  @attempt::integer[], @iteration::integer[], @release_count::integer[], @token::text[],
  @dispatch_no::integer[], @queue::text[], @task::text[], @input::bytea[], @output::bytea[],
  @last_output::bytea[], @error::bytea[], @last_error::bytea[], @progress::bytea[],
  @worker_id::text[], @waiting_for::text[], @signal::text[], @wake_at::timestamptz[],
  @ready_at::timestamptz[], @dispatched_at::timestamptz[], @started_at::timestamptz[],
  @settled_at::timestamptz[], @dispatch_deadline_at::timestamptz[],
  @attempt_deadline_at::timestamptz[], @heartbeat_deadline_at::timestamptz[],
  @step_deadline_at::timestamptz[]
) AS fresh (
  run_id, path, kind, status, visit, attempt, iteration, release_count, token, dispatch_no,
  queue, task, input, output, last_output, error, last_error, progress, worker_id, waiting_for,
  signal, wake_at, ready_at, dispatched_at, started_at, settled_at, dispatch_deadline_at,
  attempt_deadline_at, heartbeat_deadline_at, step_deadline_at)
ORDER BY run_id, path
ON CONFLICT (run_id, path) DO UPDATE SET
  kind = excluded.kind,
  status = excluded.status,
  visit = excluded.visit,
  attempt = excluded.attempt,
  iteration = excluded.iteration,
  release_count = excluded.release_count,
  token = excluded.token,
  dispatch_no = excluded.dispatch_no,
  queue = excluded.queue,
  task = excluded.task,
  input = excluded.input,
  output = excluded.output,
  last_output = excluded.last_output,
  error = excluded.error,
  last_error = excluded.last_error,
  progress = excluded.progress,
  worker_id = excluded.worker_id,
  waiting_for = excluded.waiting_for,
  signal = excluded.signal,
  wake_at = excluded.wake_at,
  ready_at = excluded.ready_at,
  dispatched_at = excluded.dispatched_at,
  started_at = excluded.started_at,
  settled_at = excluded.settled_at,
  dispatch_deadline_at = excluded.dispatch_deadline_at,
  attempt_deadline_at = excluded.attempt_deadline_at,
  heartbeat_deadline_at = excluded.heartbeat_deadline_at,
  step_deadline_at = excluded.step_deadline_at;
