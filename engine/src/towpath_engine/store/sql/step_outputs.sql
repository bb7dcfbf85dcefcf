-- Outputs of steps of a run, in the order that is asked for, without those that do not fit any more.
SELECT
  path, visit, octet_length(output) AS size,
  CASE
    WHEN sum(octet_length(output)) OVER (ORDER BY place) <= @bytes_max::bigint THEN output
  END AS value
FROM unnest(@paths::text[]) WITH ORDINALITY AS asked (wanted, place)
JOIN step ON step.run_id = @run_id::uuid AND step.path = asked.wanted
WHERE output IS NOT NULL;
