-- Delete dead letters and give their room under the cap back; answers how many there were.
-- Rows are locked in order of id, so that two who delete the same ones count each of them once; the
-- totals come last, as for those who write letters.
WITH locked AS (
  SELECT id FROM dead_letter WHERE id = ANY(@ids::uuid[]) ORDER BY id FOR UPDATE
), gone AS (
  DELETE FROM dead_letter USING locked
  WHERE dead_letter.id = locked.id
  RETURNING octet_length(dead_letter.body) + octet_length(dead_letter.headers) AS bytes
), given_back AS (
  UPDATE dead_letter_total SET
    row_count = row_count - (SELECT count(*) FROM gone),
    byte_count = byte_count - (SELECT coalesce(sum(bytes), 0) FROM gone)
  WHERE EXISTS (SELECT 1 FROM gone)
)
SELECT count(*) FROM gone;
