-- Those of these identities that a run took within the last seven days.
SELECT keyed_signal.workflow, keyed_signal.key, keyed_signal.name, keyed_signal.message_id
FROM unnest(@workflow::text[], @key::text[], @name::text[], @message_id::text[])
  AS wanted (workflow, key, name, message_id)
JOIN keyed_signal ON keyed_signal.workflow = wanted.workflow AND keyed_signal.key = wanted.key
  AND keyed_signal.name = wanted.name AND keyed_signal.message_id = wanted.message_id
WHERE keyed_signal.taken_at > now() - interval '7 days';
