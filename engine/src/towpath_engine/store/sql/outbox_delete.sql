-- Confirmed messages need no second publication.
DELETE FROM outbox WHERE id = ANY(@ids::uuid[]);
