-- The workflows whose oldest settled run is the longest overdue, and the instant before which their
-- runs are. One look into the index for each workflow, whatever the number of runs.
SELECT workflow.name, limits.before
FROM workflow
CROSS JOIN LATERAL (
  SELECT coalesce(workflow.retention_ms, @default_ms::bigint) AS retention_ms
) AS kept
CROSS JOIN LATERAL (
  SELECT coalesce(@now::timestamptz, now()) - make_interval(secs => kept.retention_ms / 1000.0)
    AS before
) AS limits
CROSS JOIN LATERAL (
  SELECT run.settled_at
  FROM run
  WHERE run.workflow = workflow.name AND run.settled_at < limits.before
    AND NOT EXISTS (
      SELECT 1 FROM run AS parent
      WHERE parent.id = run.parent_run_id AND parent.settled_at IS NULL)
    AND NOT EXISTS (
      SELECT 1 FROM run AS child
      WHERE child.parent_run_id = run.id AND child.settled_at IS NULL)
  ORDER BY run.settled_at
  LIMIT 1
) AS oldest
WHERE kept.retention_ms > 0
ORDER BY oldest.settled_at
LIMIT @limit::bigint;
