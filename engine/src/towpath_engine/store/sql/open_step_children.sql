-- A page of steps that wait for a child, by (run, path), each with how far the child is.
SELECT
  page.run_id, page.path, page.child_run_id,
  child.id IS NOT NULL AS exists, child.settled_at IS NOT NULL AS settled,
  child.id IS NOT NULL AND child.parent_step IS NULL AS detached
FROM (
  SELECT run_id, path, child_run_id FROM open_step
  WHERE child_run_id IS NOT NULL
    AND (run_id, path) > (@after_run_id::uuid, @after_path::text)
  ORDER BY run_id, path
  LIMIT @limit::bigint
) AS page
LEFT JOIN run AS child ON child.id = page.child_run_id
ORDER BY page.run_id, page.path;
