-- Append to the histories of runs whose version matched.
INSERT INTO transition (
  run_id, seq, at, what, step, status_before, status_after, attempt, iteration, visit, token,
  cause, data)
SELECT
  run_id, seq, at, what, step, status_before, status_after, attempt, iteration, visit, token,
  cause, data
FROM unnest(
  @run_id::uuid[], @seq::bigint[], @at::timestamptz[], @what::text[], @step::text[],
  @status_before::text[], @status_after::text[], @attempt::integer[], @iteration::integer[],
  @visit::integer[], @token::text[], @cause::text[], @data::text[]
) AS fresh (
  run_id, seq, at, what, step, status_before, status_after, attempt, iteration, visit, token,
  cause, data)
ORDER BY run_id, seq;
