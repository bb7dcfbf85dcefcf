-- Those of these identities that the runs have, taken or not.
SELECT signal.run_id, signal.name, signal.message_id
FROM unnest(@run_id::uuid[], @name::text[], @message_id::text[])
  AS wanted (run_id, name, message_id)
JOIN signal ON signal.run_id = wanted.run_id AND signal.name = wanted.name
  AND signal.message_id = wanted.message_id;
