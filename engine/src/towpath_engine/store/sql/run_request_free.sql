-- Take back request ids that this transaction claimed for starts which lost their key. Only the
-- claimant's own row goes.
DELETE FROM run_request
USING unnest(@workflow::text[], @request_id::text[], @run_id::uuid[])
  AS lost (workflow, request_id, run_id)
WHERE run_request.workflow = lost.workflow AND run_request.request_id = lost.request_id
  AND run_request.run_id = lost.run_id;
