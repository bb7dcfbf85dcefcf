-- A page of the runs of a workflow, newest first, before the cursor.
-- Payloads stay behind: a page is small.
SELECT
  run.id, run.status, run.version, run.seq, run.workflow, run.workflow_version, run.key,
  run.request_id, run.priority, run.tags, 'null'::bytea AS input, '{}'::bytea AS context,
  '{}'::bytea AS metadata, NULL::bytea AS output, run.error, run.triggered_by, run.traceparent,
  run.restarted_from, run.parent_run_id, run.cancelled_by, run.cancel_reason, run.paused_at,
  run.paused_by, run.pause_reason, run.revival_count, run.created_at, run.start_at,
  run.started_at, run.settled_at, run.deadline_at, run.last_at, run.cursor, run.last_step,
  run.signal_count, run.reached
FROM run
WHERE run.workflow = @workflow::text
  AND (run.created_at, run.id) < (@at::timestamptz, @id::uuid)
  AND run.created_at >= @created_from::timestamptz
  AND run.created_at < @created_to::timestamptz
  AND (@status::text IS NULL OR run.status = @status)
  AND (@key::text IS NULL OR run.key = @key)
  AND (@tag::text IS NULL OR EXISTS (
    SELECT 1 FROM run_tag WHERE run_tag.run_id = run.id AND run_tag.tag = @tag))
ORDER BY run.created_at DESC, run.id DESC
LIMIT @limit::bigint;
