-- The runs that these request ids started.
SELECT run_request.workflow, run_request.request_id, run_request.run_id
FROM unnest(@workflow::text[], @request_id::text[]) AS wanted (workflow, request_id)
JOIN run_request ON run_request.workflow = wanted.workflow
  AND run_request.request_id = wanted.request_id;
