-- Free the keys of runs that have settled. Only the holder's own row goes.
DELETE FROM run_key
USING unnest(@workflow::text[], @key::text[], @run_id::uuid[]) AS settled (workflow, key, run_id)
WHERE run_key.workflow = settled.workflow AND run_key.key = settled.key
  AND run_key.run_id = settled.run_id;
