-- Lock runs in order of id and tell what is needed to judge a cached copy. Unknown ids are absent.
SELECT id, version, workflow, workflow_version, last_step
FROM run
WHERE id = ANY(@ids::uuid[])
ORDER BY id
FOR NO KEY UPDATE;
