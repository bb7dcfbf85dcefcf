-- Write decided runs and all that usually goes with them, as one statement: most batches need no
-- other, and are then a transaction of their own in one round trip. What is absent travels as
-- empty arrays.
-- The fence: unless every run still has its expected version, nothing is written at all. It is
-- evaluated before the parts that nothing refers to, and run rows are locked in order of id.
-- The same holds for the pauses that its dispatches were decided under (@pause_epoch, NULL: none).
-- What never changes after the start is not written; payloads that the decision left alone are kept
-- without being sent, so that a heartbeat does not rewrite an input of 256 KiB.
-- A settled run or step can't be changed: triggers refuse it.
-- A stored instant only ever moves to an earlier one, so that renewing a deadline costs no write;
-- one that has passed by the run's last transition (@timer_last_at) is void and is replaced. That
-- compares with the stored one, so a batch that arms timers must have locked its runs before.
-- All parts see the tables as they were: no two of them may write the same row.
WITH changed_run AS (
  UPDATE run SET
    status = changed.status,
    version = changed.version,
    seq = changed.seq,
    metadata = CASE WHEN changed.keep_metadata THEN run.metadata ELSE changed.metadata END,
    output = changed.output,
    error = changed.error,
    cancelled_by = changed.cancelled_by,
    cancel_reason = changed.cancel_reason,
    paused_at = changed.paused_at,
    paused_by = changed.paused_by,
    pause_reason = changed.pause_reason,
    held_by = changed.held_by,
    revival_count = changed.revival_count,
    visit_base = changed.visit_base,
    start_at = changed.start_at,
    started_at = changed.started_at,
    settled_at = changed.settled_at,
    deadline_at = changed.deadline_at,
    last_at = changed.last_at,
    cursor = changed.cursor,
    last_step = changed.last_step,
    signal_count = changed.signal_count,
    reached = changed.reached,
    ending = changed.ending,
    compensation = changed.compensation,
    undo_top = changed.undo_top
  FROM (
    SELECT * FROM unnest(
      @run_id::uuid[], @run_expected::bigint[], @run_status::text[], @run_version::bigint[],
      @run_seq::bigint[], @run_metadata::bytea[], @run_output::bytea[], @run_error::bytea[],
      @run_cancelled_by::text[], @run_cancel_reason::text[],
      @run_paused_at::timestamptz[], @run_paused_by::text[], @run_pause_reason::text[],
      @run_held_by::text[], @run_revival_count::integer[], @run_visit_base::integer[],
      @run_start_at::timestamptz[],
      @run_started_at::timestamptz[], @run_settled_at::timestamptz[],
      @run_deadline_at::timestamptz[], @run_last_at::timestamptz[], @run_cursor::text[],
      @run_last_step::text[], @run_signal_count::integer[], @run_reached::bytea[],
      @run_ending::text[], @run_compensation::text[], @run_undo_top::text[],
      @run_keep_metadata::boolean[]
  ) AS t (
    id, expected, status, version, seq, metadata, output, error, cancelled_by, cancel_reason,
    paused_at, paused_by, pause_reason, held_by, revival_count, visit_base, start_at, started_at,
    settled_at, deadline_at, last_at, cursor, last_step, signal_count, reached, ending,
    compensation, undo_top, keep_metadata)
    ORDER BY id
  ) AS changed
  WHERE run.id = changed.id AND run.version = changed.expected
  RETURNING run.id
), changed_step AS (
  UPDATE step SET
    status = changed.status,
    visit = changed.visit,
    came_from = changed.came_from,
    attempt = changed.attempt,
    iteration = changed.iteration,
    release_count = changed.release_count,
    revival_count = changed.revival_count,
    token = changed.token,
    dispatch_no = changed.dispatch_no,
    queue = changed.queue,
    task = changed.task,
    input = CASE WHEN changed.keep_input THEN step.input ELSE changed.input END,
    output = CASE WHEN changed.keep_output THEN step.output ELSE changed.output END,
    last_output = CASE
      WHEN changed.keep_last_output THEN step.last_output ELSE changed.last_output
    END,
    error = changed.error,
    last_error = changed.last_error,
    progress = CASE WHEN changed.keep_progress THEN step.progress ELSE changed.progress END,
    worker_id = changed.worker_id,
    waiting_for = changed.waiting_for,
    held_by = changed.held_by,
    signal = changed.signal,
    wake_at = changed.wake_at,
    ready_at = changed.ready_at,
    dispatched_at = changed.dispatched_at,
    started_at = changed.started_at,
    settled_at = changed.settled_at,
    dispatch_deadline_at = changed.dispatch_deadline_at,
    attempt_deadline_at = changed.attempt_deadline_at,
    heartbeat_deadline_at = changed.heartbeat_deadline_at,
    step_deadline_at = changed.step_deadline_at,
    parts = changed.parts,
    errors = CASE WHEN changed.keep_errors THEN step.errors ELSE changed.errors END,
    last_step = changed.last_step,
    reached = changed.reached,
    undo_below = changed.undo_below,
    child_run_id = changed.child_run_id,
    child_key = changed.child_key
  FROM unnest(
    @step_run_id::uuid[], @step_path::text[], @step_status::text[], @step_visit::integer[],
    @step_attempt::integer[], @step_iteration::integer[], @step_release_count::integer[],
    @step_revival_count::integer[], @step_came_from::text[],
    @step_token::text[], @step_dispatch_no::integer[], @step_queue::text[], @step_task::text[],
    @step_input::bytea[], @step_output::bytea[], @step_last_output::bytea[], @step_error::bytea[],
    @step_last_error::bytea[], @step_progress::bytea[], @step_worker_id::text[],
    @step_waiting_for::text[], @step_held_by::text[], @step_signal::text[],
    @step_wake_at::timestamptz[],
    @step_ready_at::timestamptz[], @step_dispatched_at::timestamptz[],
    @step_started_at::timestamptz[], @step_settled_at::timestamptz[],
    @step_dispatch_deadline_at::timestamptz[], @step_attempt_deadline_at::timestamptz[],
    @step_heartbeat_deadline_at::timestamptz[], @step_step_deadline_at::timestamptz[],
    @step_parts::text[], @step_errors::bytea[], @step_last_step::text[], @step_reached::bytea[],
    @step_undo_below::text[], @step_child_run_id::uuid[], @step_child_key::text[],
    @step_keep_input::boolean[], @step_keep_output::boolean[], @step_keep_last_output::boolean[],
    @step_keep_progress::boolean[], @step_keep_errors::boolean[]
  ) AS changed (
    run_id, path, status, visit, attempt, iteration, release_count, revival_count, came_from,
    token, dispatch_no, queue,
    task, input, output, last_output, error, last_error, progress, worker_id, waiting_for, held_by,
    signal,
    wake_at, ready_at, dispatched_at, started_at, settled_at, dispatch_deadline_at,
    attempt_deadline_at, heartbeat_deadline_at, step_deadline_at, parts, errors, last_step,
    reached, undo_below, child_run_id, child_key, keep_input, keep_output, keep_last_output,
    keep_progress, keep_errors)
  WHERE step.run_id = changed.run_id AND step.path = changed.path
  RETURNING 1
), new_step AS (
  INSERT INTO step (
    run_id, path, kind, status, visit, attempt, iteration, release_count, revival_count, came_from,
    token, dispatch_no,
    queue, task, input, output, last_output, error, last_error, progress, worker_id, waiting_for,
    held_by, signal, wake_at, ready_at, dispatched_at, started_at, settled_at, dispatch_deadline_at,
    attempt_deadline_at, heartbeat_deadline_at, step_deadline_at, parts, errors, last_step,
    reached, undo_below, child_run_id, child_key)
  SELECT
    run_id, path, kind, status, visit, attempt, iteration, release_count, revival_count, came_from,
    token, dispatch_no,
    queue, task, input, output, last_output, error, last_error, progress, worker_id, waiting_for,
    held_by, signal, wake_at, ready_at, dispatched_at, started_at, settled_at, dispatch_deadline_at,
    attempt_deadline_at, heartbeat_deadline_at, step_deadline_at, parts, errors, last_step,
    reached, undo_below, child_run_id, child_key
  FROM unnest(
    @new_run_id::uuid[], @new_path::text[], @new_kind::text[], @new_status::text[],
    @new_visit::integer[], @new_attempt::integer[], @new_iteration::integer[],
    @new_release_count::integer[], @new_revival_count::integer[], @new_came_from::text[],
    @new_token::text[],
    @new_dispatch_no::integer[],
    @new_queue::text[], @new_task::text[], @new_input::bytea[], @new_output::bytea[],
    @new_last_output::bytea[], @new_error::bytea[], @new_last_error::bytea[],
    @new_progress::bytea[], @new_worker_id::text[], @new_waiting_for::text[], @new_held_by::text[],
    @new_signal::text[],
    @new_wake_at::timestamptz[], @new_ready_at::timestamptz[], @new_dispatched_at::timestamptz[],
    @new_started_at::timestamptz[], @new_settled_at::timestamptz[],
    @new_dispatch_deadline_at::timestamptz[], @new_attempt_deadline_at::timestamptz[],
    @new_heartbeat_deadline_at::timestamptz[], @new_step_deadline_at::timestamptz[],
    @new_parts::text[], @new_errors::bytea[], @new_last_step::text[], @new_reached::bytea[],
    @new_undo_below::text[], @new_child_run_id::uuid[], @new_child_key::text[]
  ) AS fresh (
    run_id, path, kind, status, visit, attempt, iteration, release_count, revival_count, came_from,
    token, dispatch_no,
    queue, task, input, output, last_output, error, last_error, progress, worker_id, waiting_for,
    held_by, signal, wake_at, ready_at, dispatched_at, started_at, settled_at, dispatch_deadline_at,
    attempt_deadline_at, heartbeat_deadline_at, step_deadline_at, parts, errors, last_step,
    reached, undo_below, child_run_id, child_key)
  ORDER BY run_id, path
  ON CONFLICT (run_id, path) DO UPDATE SET
    kind = excluded.kind,
    status = excluded.status,
    visit = excluded.visit,
    came_from = excluded.came_from,
    attempt = excluded.attempt,
    iteration = excluded.iteration,
    release_count = excluded.release_count,
    revival_count = excluded.revival_count,
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
    held_by = excluded.held_by,
    signal = excluded.signal,
    wake_at = excluded.wake_at,
    ready_at = excluded.ready_at,
    dispatched_at = excluded.dispatched_at,
    started_at = excluded.started_at,
    settled_at = excluded.settled_at,
    dispatch_deadline_at = excluded.dispatch_deadline_at,
    attempt_deadline_at = excluded.attempt_deadline_at,
    heartbeat_deadline_at = excluded.heartbeat_deadline_at,
    step_deadline_at = excluded.step_deadline_at,
    parts = excluded.parts,
    errors = excluded.errors,
    last_step = excluded.last_step,
    reached = excluded.reached,
    undo_below = excluded.undo_below,
    child_run_id = excluded.child_run_id,
    child_key = excluded.child_key
), opened AS (
  INSERT INTO open_step (
    run_id, path, status, token, queue, level, dispatched_at, reported, signal, child_run_id,
    cancelling)
  SELECT
    run_id, path, status, token, queue, level, dispatched_at, reported, signal, child_run_id,
    cancelling
  FROM unnest(
    @open_run_id::uuid[], @open_path::text[], @open_status::text[], @open_token::text[],
    @open_queue::text[], @open_level::smallint[], @open_dispatched_at::timestamptz[],
    @open_reported::boolean[], @open_signal::text[], @open_child_run_id::uuid[],
    @open_cancelling::boolean[]
  ) AS fresh (
    run_id, path, status, token, queue, level, dispatched_at, reported, signal, child_run_id,
    cancelling)
  ORDER BY run_id, path
  ON CONFLICT (run_id, path) DO UPDATE SET
    status = excluded.status,
    token = excluded.token,
    queue = excluded.queue,
    level = excluded.level,
    dispatched_at = excluded.dispatched_at,
    reported = excluded.reported,
    signal = excluded.signal,
    child_run_id = excluded.child_run_id,
    cancelling = excluded.cancelling
), closed AS (
  DELETE FROM open_step
  USING unnest(@closed_run_id::uuid[], @closed_path::text[]) AS settled (run_id, path)
  WHERE open_step.run_id = settled.run_id AND open_step.path = settled.path
), held AS (
  INSERT INTO ready_step (run_id, path, held_by, queue, level, ready_at)
  SELECT run_id, path, held_by, queue, level, ready_at
  FROM unnest(
    @ready_run_id::uuid[], @ready_path::text[], @ready_held_by::text[], @ready_queue::text[],
    @ready_level::smallint[], @ready_ready_at::timestamptz[]
  ) AS fresh (run_id, path, held_by, queue, level, ready_at)
  ORDER BY run_id, path
  ON CONFLICT (run_id, path) DO UPDATE SET
    held_by = excluded.held_by,
    queue = excluded.queue,
    level = excluded.level,
    ready_at = excluded.ready_at
), admitted AS (
  DELETE FROM ready_step
  USING unnest(@admitted_run_id::uuid[], @admitted_path::text[]) AS gone (run_id, path)
  WHERE ready_step.run_id = gone.run_id AND ready_step.path = gone.path
), armed AS (
  INSERT INTO timer (run_id, path, due_at, preemptible, partition)
  SELECT fresh.run_id, fresh.path, fresh.due_at, fresh.preemptible, fresh.partition
  FROM unnest(
    @timer_run_id::uuid[], @timer_path::text[], @timer_due_at::timestamptz[],
    @timer_preemptible::boolean[], @timer_last_at::timestamptz[], @timer_partition::smallint[]
  ) AS fresh (run_id, path, due_at, preemptible, last_at, partition)
  LEFT JOIN timer AS stored ON stored.run_id = fresh.run_id AND stored.path = fresh.path
  WHERE stored.due_at IS NULL
    OR fresh.due_at < stored.due_at
    OR (stored.due_at <= fresh.last_at AND fresh.due_at <> stored.due_at)
    OR fresh.preemptible <> stored.preemptible
  ORDER BY fresh.run_id, fresh.path
  ON CONFLICT (run_id, path) DO UPDATE SET
    due_at = excluded.due_at,
    preemptible = excluded.preemptible
), disarmed AS (
  DELETE FROM timer
  USING unnest(@disarmed_run_id::uuid[], @disarmed_path::text[]) AS void (run_id, path)
  WHERE timer.run_id = void.run_id AND timer.path = void.path
), settled AS (
  DELETE FROM timer WHERE run_id = ANY(@settled_run_ids::uuid[])
), freed AS (
  DELETE FROM run_key
  USING unnest(@key_workflow::text[], @key_key::text[], @key_run_id::uuid[])
    AS settled (workflow, key, run_id)
  WHERE run_key.workflow = settled.workflow AND run_key.key = settled.key
    AND run_key.run_id = settled.run_id
), history AS (
  INSERT INTO transition (
    run_id, seq, at, what, step, status_before, status_after, attempt, iteration, visit, token,
    cause, data, payload)
  SELECT
    run_id, seq, at, what, step, status_before, status_after, attempt, iteration, visit, token,
    cause, data, payload
  FROM unnest(
    @line_run_id::uuid[], @line_seq::bigint[], @line_at::timestamptz[], @line_what::text[],
    @line_step::text[], @line_status_before::text[], @line_status_after::text[],
    @line_attempt::integer[], @line_iteration::integer[], @line_visit::integer[],
    @line_token::text[], @line_cause::text[], @line_data::text[],
    @line_payload::bytea[]
  ) AS fresh (
    run_id, seq, at, what, step, status_before, status_after, attempt, iteration, visit, token,
    cause, data, payload)
  ORDER BY run_id, seq
), dead AS (
  DELETE FROM outbox
  USING unnest(@dead_run_id::uuid[], @dead_token::text[]) AS dead (run_id, token)
  WHERE outbox.token = dead.token AND outbox.run_id = dead.run_id
), confirmed AS (
  DELETE FROM outbox WHERE id = ANY(@published::uuid[])
), wanted AS (
  INSERT INTO outbox (
    id, run_id, token, subject, msg_id, headers, body, publish_after)
  SELECT
    id, run_id, token, subject, msg_id, headers, body, publish_after
  FROM unnest(
    @out_id::uuid[], @out_run_id::uuid[], @out_token::text[], @out_subject::text[],
    @out_msg_id::text[], @out_headers::text[], @out_body::bytea[],
    @out_publish_after::timestamptz[]
  ) AS fresh (
    id, run_id, token, subject, msg_id, headers, body, publish_after)
  ORDER BY id
)
SELECT
  require_count((SELECT count(*) FROM changed_run), @run_count::bigint, 'run_version_expected')
    AS is_current,
  require_count((SELECT count(*) FROM changed_step), @step_count::bigint, 'step_exists')
    AS is_complete,
  require_pause_epoch(@pause_epoch::bigint) AS is_admitted;
