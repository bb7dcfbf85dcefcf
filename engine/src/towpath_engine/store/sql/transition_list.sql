-- A page of a run's history, without payloads.
SELECT
  seq, at, what, step, status_before, status_after, attempt, iteration, visit, token, cause,
  data, NULL::bytea AS payload
FROM transition
WHERE run_id = @run_id::uuid AND seq > @after_seq::bigint
ORDER BY seq
LIMIT @limit::bigint;
