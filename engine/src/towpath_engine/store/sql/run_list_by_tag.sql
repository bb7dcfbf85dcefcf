-- A page of the runs with a tag, newest first, before the cursor.
-- Payloads stay behind: a page is small.
SELECT
  run.id, run.status, run.version, run.seq, run.workflow, run.workflow_version, run.key,
  run.request_id, run.priority, run.tags, 'null'::bytea AS input, '{}'::bytea AS context,
  '{}'::bytea AS metadata, NULL::bytea AS output, run.error, run.triggered_by, run.traceparent,
  run.restarted_from, run.parent_run_id, run.cancelled_by, run.cancel_reason, run.paused_at,
  run.paused_by, run.pause_reason, run.revival_count, run.created_at, run.start_at,
  run.started_at, run.settled_at, run.deadline_at, run.last_at, run.cursor, run.last_step,
  run.signal_count, run.reached
FROM run_tag
JOIN run ON run.id = run_tag.run_id
WHERE run_tag.tag = @tag::text
  AND (run_tag.created_at, run_tag.run_id) < (@at::timestamptz, @id::uuid)
  AND run_tag.created_at >= @created_from::timestamptz
  AND run_tag.created_at < @created_to::timestamptz
  AND (@workflow::text IS NULL OR run.workflow = @workflow)
  AND (@status::text IS NULL OR run.status = @status)
  AND (@key::text IS NULL OR run.key = @key)
ORDER BY run_tag.created_at DESC, run_tag.run_id DESC
LIMIT @limit::bigint;
