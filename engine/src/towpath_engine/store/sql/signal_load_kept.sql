-- The signals of runs that no wait has taken, in order of arrival.
SELECT
  run_id, number, name, payload, message_id, sent_by, received_at
FROM signal
WHERE run_id = ANY(@run_ids::uuid[]) AND consumed_by IS NULL
ORDER BY run_id, number;
