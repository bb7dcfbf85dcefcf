-- Write steps that exist, leaving the payloads that the decision did not change where they are: a
-- heartbeat must not rewrite an input of 256 KiB. A settled step can't be changed within its
-- visit: a trigger refuses it. The caller holds the runs and compares the count.
UPDATE step SET
  status = changed.status,
  visit = changed.visit,
  attempt = changed.attempt,
  iteration = changed.iteration,
  release_count = changed.release_count,
  token = changed.token,
  dispatch_no = changed.dispatch_no,
  queue = changed.queue,
  task = changed.task,
  input = CASE WHEN changed.keep_input THEN step.input ELSE changed.input END,
  output = CASE WHEN changed.keep_output THEN step.output ELSE changed.output END,
  last_output = CASE WHEN changed.keep_last_output THEN step.last_output ELSE changed.last_output END,
  error = changed.error,
  last_error = changed.last_error,
  progress = CASE WHEN changed.keep_progress THEN step.progress ELSE changed.progress END,
  worker_id = changed.worker_id,
  waiting_for = changed.waiting_for,
  signal = changed.signal,
  wake_at = changed.wake_at,
  ready_at = changed.ready_at,
  dispatched_at = changed.dispatched_at,
  started_at = changed.started_at,
  settled_at = changed.settled_at,
  dispatch_deadline_at = changed.dispatch_deadline_at,
  attempt_deadline_at = changed.attempt_deadline_at,
  heartbeat_deadline_at = changed.heartbeat_deadline_at,
  step_deadline_at = changed.step_deadline_at
FROM unnest(
  @run_id::uuid[], @path::text[], @status::text[], @visit::integer[], @attempt::integer[],
  @iteration::integer[], @release_count::integer[], @token::text[], @dispatch_no::integer[],
  @queue::text[], @task::text[], @input::bytea[], @output::bytea[], @last_output::bytea[],
  @error::bytea[], @last_error::bytea[], @progress::bytea[], @worker_id::text[],
  @waiting_for::text[], @signal::text[], @wake_at::timestamptz[], @ready_at::timestamptz[],
  @dispatched_at::timestamptz[], @started_at::timestamptz[], @settled_at::timestamptz[],
  @dispatch_deadline_at::timestamptz[], @attempt_deadline_at::timestamptz[],
  @heartbeat_deadline_at::timestamptz[], @step_deadline_at::timestamptz[],
  @keep_input::boolean[], @keep_output::boolean[], @keep_last_output::boolean[],
  @keep_progress::boolean[]
) AS changed (
  run_id, path, status, visit, attempt, iteration, release_count, token, dispatch_no, queue,
  task, input, output, last_output, error, last_error, progress, worker_id, waiting_for, signal,
  wake_at, ready_at, dispatched_at, started_at, settled_at, dispatch_deadline_at,
  attempt_deadline_at, heartbeat_deadline_at, step_deadline_at, keep_input, keep_output,
  keep_last_output, keep_progress)
WHERE step.run_id = changed.run_id AND step.path = changed.path;
