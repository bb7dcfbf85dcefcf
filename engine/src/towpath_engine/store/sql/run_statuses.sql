-- The status of each of these runs that exists.
SELECT id, status FROM run WHERE id = ANY(@ids::uuid[]);
