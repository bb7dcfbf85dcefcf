-- Let nobody else of this schema add queues until the end of the transaction, so that a count is true
-- when something is added to it. Readers are not held up.
SELECT pg_advisory_xact_lock('queue'::regclass::oid::bigint);
