-- How many settled runs of a workflow a purge would take, up to a limit.
SELECT count(*)
FROM (
  SELECT 1
  FROM run
  WHERE run.workflow = @workflow::text AND run.settled_at < @before::timestamptz
    AND NOT EXISTS (
      SELECT 1 FROM run AS parent
      WHERE parent.id = run.parent_run_id AND parent.settled_at IS NULL)
    AND NOT EXISTS (
      SELECT 1 FROM run AS child
      WHERE child.parent_run_id = run.id AND child.settled_at IS NULL)
  LIMIT @limit::bigint
) AS settled;
