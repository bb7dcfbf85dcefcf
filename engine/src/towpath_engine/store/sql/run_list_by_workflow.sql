-- A page of the runs of a workflow in these statuses, newest first, before the place (@at, @id).
-- As run_list_by_status: one page of each status at most is read. Payloads stay behind.
SELECT
  run.id, run.status, run.version, run.seq, run.workflow, run.workflow_version, run.key,
  run.request_id, run.priority, run.tags, 'null'::bytea AS input, '{}'::bytea AS context,
  '{}'::bytea AS metadata, NULL::bytea AS output, run.error, run.triggered_by, run.traceparent,
  run.restarted_from, run.parent_run_id, run.cancelled_by, run.cancel_reason, run.paused_at,
  run.paused_by, run.pause_reason, run.revival_count, run.created_at, run.start_at,
  run.started_at, run.settled_at, run.deadline_at, run.last_at, run.cursor, run.last_step,
  run.signal_count, run.reached, run.ending, run.compensation
FROM (
  SELECT newest.id, newest.created_at
  FROM unnest(@statuses::text[]) AS wanted (status)
  CROSS JOIN LATERAL (
    SELECT one.id, one.created_at
    FROM run AS one
    WHERE one.workflow = @workflow::text
      AND one.status = wanted.status
      AND (one.created_at, one.id) < (@at::timestamptz, @id::uuid)
      AND one.created_at >= @created_from::timestamptz
    ORDER BY one.created_at DESC, one.id DESC
    LIMIT @limit::bigint
  ) AS newest
  ORDER BY newest.created_at DESC, newest.id DESC
  LIMIT @limit
) AS page
JOIN run ON run.id = page.id
ORDER BY page.created_at DESC, page.id DESC;
