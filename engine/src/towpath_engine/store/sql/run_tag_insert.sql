-- The tags of new runs, for run.list.
INSERT INTO run_tag (run_id, tag, created_at)
SELECT run_id, tag, created_at
FROM unnest(@run_id::uuid[], @tag::text[], @created_at::timestamptz[])
  AS fresh (run_id, tag, created_at)
ORDER BY run_id, tag
ON CONFLICT (run_id, tag) DO NOTHING;
