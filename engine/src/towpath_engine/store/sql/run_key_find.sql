-- The live runs that hold these keys.
SELECT run_key.workflow, run_key.key, run_key.run_id
FROM unnest(@workflow::text[], @key::text[]) AS wanted (workflow, key)
JOIN run_key ON run_key.workflow = wanted.workflow AND run_key.key = wanted.key;
