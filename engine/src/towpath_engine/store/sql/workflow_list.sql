-- The newest version of every workflow, by name.
SELECT v.workflow, v.version, v.fingerprint, v.document, v.created_at
FROM workflow
JOIN workflow_version AS v ON v.workflow = workflow.name AND v.version = workflow.newest_version
ORDER BY workflow.name;
