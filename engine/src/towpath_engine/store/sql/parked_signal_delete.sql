-- Forget parked signals that were taken or have become dead letters.
DELETE FROM parked_signal WHERE id = ANY(@ids::uuid[]);
