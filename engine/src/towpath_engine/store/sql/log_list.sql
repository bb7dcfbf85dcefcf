-- A page of the logs of a run, or of one step of it, in order of arrival.
SELECT number, run_id, path, attempt, token, at, lines, cut
FROM log
WHERE run_id = @run_id::uuid AND number > @after::bigint
  AND (@path::text IS NULL OR path = @path)
ORDER BY number
LIMIT @limit::bigint;
