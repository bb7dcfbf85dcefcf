-- A page of live children, by id, that their parent's step does not wait for any more. One that an
-- operator had go on is left alone: its parent has taken its end.
SELECT id AS run_id, parent_run_id, parent_step
FROM run
WHERE settled_at IS NULL AND parent_step IS NOT NULL
  AND revival_count = 0 AND ending IS NULL
  AND id > @after_run_id::uuid
  AND NOT EXISTS (
    SELECT FROM open_step
    WHERE open_step.run_id = run.parent_run_id AND open_step.path = run.parent_step
      AND open_step.child_run_id = run.id)
ORDER BY id
LIMIT @limit::bigint;
