-- Whether one run, and whoever belongs to it, has settled. Nothing comes back for an unknown run.
SELECT
  run.settled_at IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM run AS parent
    WHERE parent.id = run.parent_run_id AND parent.settled_at IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM run AS child
    WHERE child.parent_run_id = run.id AND child.settled_at IS NULL) AS is_past
FROM run
WHERE run.id = @run_id::uuid;
