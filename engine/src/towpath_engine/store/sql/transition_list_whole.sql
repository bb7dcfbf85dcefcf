-- A page of a run's history with its payloads, as many as fit; the first always does.
SELECT
  seq, at, what, step, status_before, status_after, attempt, iteration, visit, token, cause,
  data, payload
FROM (
  SELECT
    *,
    sum(coalesce(octet_length(payload), 0)) OVER (ORDER BY seq) AS total_bytes,
    row_number() OVER (ORDER BY seq) AS place
  FROM transition
  WHERE run_id = @run_id::uuid AND seq > @after_seq::bigint
  ORDER BY seq
  LIMIT @limit::bigint
) AS page
WHERE total_bytes <= @bytes_max::bigint OR place = 1
ORDER BY seq;
