-- A version of a workflow; the newest when @version is null.
SELECT workflow, version, fingerprint, document, created_at
FROM workflow_version
WHERE workflow = @workflow::text AND (@version::integer IS NULL OR version = @version)
ORDER BY version DESC
LIMIT 1;
