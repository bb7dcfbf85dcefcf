-- Settled runs of a workflow, the oldest first, locked. Those that somebody else has in hand are left
-- to a later look, and so are those whose parent or child is live.
SELECT run.id, run.seq
FROM run
WHERE run.workflow = @workflow::text AND run.settled_at < @before::timestamptz
  AND NOT EXISTS (
    SELECT 1 FROM run AS parent
    WHERE parent.id = run.parent_run_id AND parent.settled_at IS NULL)
  AND NOT EXISTS (
    SELECT 1 FROM run AS child
    WHERE child.parent_run_id = run.id AND child.settled_at IS NULL)
ORDER BY run.settled_at, run.id
LIMIT @limit::bigint
FOR UPDATE OF run SKIP LOCKED;
