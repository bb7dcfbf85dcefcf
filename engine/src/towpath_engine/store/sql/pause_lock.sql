-- Wait until every transaction that has read the pauses is over, and keep others from reading them
-- until this one is. A statement of its own, so that the next one sees what those have written.
SELECT pg_advisory_xact_lock('pause_epoch'::regclass::oid::bigint);
