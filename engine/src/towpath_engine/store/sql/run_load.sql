-- Whole run rows.
SELECT
  id, status, version, seq, workflow, workflow_version, key, request_id, priority, tags, input,
  context, metadata, output, error, triggered_by, traceparent, restarted_from, parent_run_id,
  cancelled_by, cancel_reason, paused_at, paused_by, pause_reason, held_by, revival_count,
  visit_base, created_at, start_at, started_at, settled_at, deadline_at, last_at, cursor, last_step,
  signal_count, reached, parent_step, depth, ending, compensation, undo_top
FROM run
WHERE id = ANY(@ids::uuid[]);
