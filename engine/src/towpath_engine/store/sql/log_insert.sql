-- The log lines of reports, a row a report.
INSERT INTO log (run_id, path, attempt, token, at, lines)
SELECT run_id, path, attempt, token, at, lines
FROM unnest(
  @run_id::uuid[], @path::text[], @attempt::integer[], @token::text[], @at::timestamptz[],
  @lines::bytea[]
) WITH ORDINALITY AS fresh (run_id, path, attempt, token, at, lines, place)
ORDER BY run_id, place;
