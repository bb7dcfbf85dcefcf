-- A page of dead letters, newest first, with the beginnings of their bodies: whole ones of a page
-- may have a gigabyte together.
SELECT
  id, at, reason, message, subject, headers, substr(body, 1, @body_bytes_max::integer) AS body,
  octet_length(body) AS body_bytes, run_id, step
FROM dead_letter
WHERE @before::uuid IS NULL OR id < @before
ORDER BY id DESC
LIMIT @limit::bigint;
