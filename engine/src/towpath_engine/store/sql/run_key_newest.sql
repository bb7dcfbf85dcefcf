-- The live run with this key, else the newest settled one.
SELECT coalesce(
  (SELECT run_id FROM run_key WHERE workflow = @workflow::text AND key = @key::text),
  (SELECT id FROM run WHERE key = @key AND workflow = @workflow
   ORDER BY created_at DESC, id DESC LIMIT 1));
