-- Claim keys of workflows, in order. One that is held is left alone; a concurrent claim of the
-- same key waits until the other transaction ends.
INSERT INTO run_key (workflow, key, run_id)
SELECT workflow, key, run_id
FROM unnest(@workflow::text[], @key::text[], @run_id::uuid[]) AS claim (workflow, key, run_id)
ORDER BY workflow, key
ON CONFLICT (workflow, key) DO NOTHING
RETURNING workflow, key;
