-- The version of a workflow that has this fingerprint.
SELECT workflow, version, fingerprint, document, created_at
FROM workflow_version
WHERE workflow = @workflow::text AND fingerprint = @fingerprint::text;
