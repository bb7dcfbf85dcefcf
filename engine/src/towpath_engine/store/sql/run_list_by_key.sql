-- A page of the runs with a key, newest first, before the place (@at, @id). At most @scan of them are
-- looked at; the last of so many is returned whether it `fits` or not: the next page goes on behind
-- it. Payloads stay behind.
SELECT candidate.*
FROM (
  SELECT
    run.id, run.status, run.version, run.seq, run.workflow, run.workflow_version, run.key,
    run.request_id, run.priority, run.tags, 'null'::bytea AS input, '{}'::bytea AS context,
    '{}'::bytea AS metadata, NULL::bytea AS output, run.error, run.triggered_by, run.traceparent,
    run.restarted_from, run.parent_run_id, run.cancelled_by, run.cancel_reason, run.paused_at,
    run.paused_by, run.pause_reason, run.revival_count, run.created_at, run.start_at,
    run.started_at, run.settled_at, run.deadline_at, run.last_at, run.cursor, run.last_step,
    run.signal_count, run.reached, run.ending, run.compensation,
    row_number() OVER (ORDER BY run.created_at DESC, run.id DESC) AS place,
    (@workflow::text IS NULL OR run.workflow = @workflow)
    AND (@status::text IS NULL OR run.status = @status)
    AND (@tag::text IS NULL OR EXISTS (
      SELECT 1 FROM run_tag WHERE run_tag.run_id = run.id AND run_tag.tag = @tag)) AS fits
  FROM run
  WHERE run.key = @key::text
    AND (run.created_at, run.id) < (@at::timestamptz, @id::uuid)
    AND run.created_at >= @created_from::timestamptz
  ORDER BY run.created_at DESC, run.id DESC
  LIMIT @scan::bigint
) AS candidate
WHERE candidate.fits OR candidate.place = @scan
ORDER BY candidate.created_at DESC, candidate.id DESC
LIMIT @limit::bigint;
