-- Remember identities for seven days from now.
INSERT INTO keyed_signal (workflow, key, name, message_id, run_id, taken_at)
SELECT workflow, key, name, message_id, run_id, now()
FROM unnest(
  @workflow::text[], @key::text[], @name::text[], @message_id::text[], @run_id::uuid[]
) AS fresh (workflow, key, name, message_id, run_id)
ORDER BY workflow, key, name, message_id
ON CONFLICT (workflow, key, name, message_id) DO UPDATE SET
  run_id = excluded.run_id,
  taken_at = excluded.taken_at;
