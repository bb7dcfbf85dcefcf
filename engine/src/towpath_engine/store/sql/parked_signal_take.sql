-- Take what is parked for these runs and keys: each signal goes to one transaction only.
WITH wanted AS (
  SELECT id FROM parked_signal WHERE run_id = ANY(@run_ids::uuid[])
  UNION ALL
  SELECT parked_signal.id
  FROM unnest(@workflow::text[], @key::text[]) AS pair (workflow, key)
  JOIN parked_signal ON parked_signal.workflow = pair.workflow AND parked_signal.key = pair.key
)
DELETE FROM parked_signal
WHERE id IN (SELECT id FROM wanted)
RETURNING
  id, run_id, workflow, key, name, payload, message_id, sent_by, received_at, expires_at;
