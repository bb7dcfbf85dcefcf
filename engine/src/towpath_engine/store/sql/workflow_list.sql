-- The newest version of every workflow, by name; without its document, which may be large.
SELECT v.workflow, v.version, v.fingerprint, ''::bytea AS document, v.created_at
FROM workflow
JOIN workflow_version AS v ON v.workflow = workflow.name AND v.version = workflow.newest_version
ORDER BY workflow.name;
