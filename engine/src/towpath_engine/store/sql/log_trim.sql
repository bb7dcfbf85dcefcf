-- Bound the logs of these attempts: the newest rows within @bytes_max stay, and always the last;
-- the oldest of those that stay is marked when older ones went.
WITH attempt AS (
  SELECT DISTINCT run_id, path, attempt
  FROM unnest(@run_id::uuid[], @path::text[], @attempt::integer[]) AS t (run_id, path, attempt)
), sized AS MATERIALIZED (
  SELECT
    log.run_id, log.number, log.cut, log.path, log.attempt,
    row_number() OVER newest AS place,
    sum(octet_length(log.lines)) OVER newest AS bytes
  FROM attempt
  JOIN log ON log.run_id = attempt.run_id AND log.path = attempt.path
    AND log.attempt = attempt.attempt
  WINDOW newest AS (PARTITION BY log.run_id, log.path, log.attempt ORDER BY log.number DESC)
), gone AS (
  DELETE FROM log USING sized
  WHERE log.run_id = sized.run_id AND log.number = sized.number
    AND sized.place > 1 AND sized.bytes > @bytes_max::bigint
  RETURNING log.run_id, log.path, log.attempt
)
UPDATE log SET cut = true
FROM (
  SELECT sized.run_id, min(sized.number) AS number
  FROM sized
  JOIN gone ON gone.run_id = sized.run_id AND gone.path = sized.path
    AND gone.attempt = sized.attempt
  WHERE sized.place = 1 OR sized.bytes <= @bytes_max::bigint
  GROUP BY sized.run_id, sized.path, sized.attempt
) AS oldest
WHERE log.run_id = oldest.run_id AND log.number = oldest.number;
