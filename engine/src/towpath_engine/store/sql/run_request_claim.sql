-- Claim request ids of workflows, in order. One that is known is left alone; a concurrent claim of
-- the same id waits until the other transaction ends.
INSERT INTO run_request (workflow, request_id, run_id)
SELECT workflow, request_id, run_id
FROM unnest(@workflow::text[], @request_id::text[], @run_id::uuid[])
  AS claim (workflow, request_id, run_id)
ORDER BY workflow, request_id
ON CONFLICT (workflow, request_id) DO NOTHING
RETURNING workflow, request_id;
