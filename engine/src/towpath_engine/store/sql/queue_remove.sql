-- Forget queues, whose consumers could not be made.
DELETE FROM queue WHERE name = ANY(@names::text[]);
