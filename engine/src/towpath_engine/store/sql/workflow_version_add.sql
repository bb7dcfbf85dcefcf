-- Store the next version of a workflow whose row the caller has locked.
WITH moved AS (
  UPDATE workflow SET newest_version = newest_version + 1
  WHERE name = @workflow::text
  RETURNING newest_version
)
INSERT INTO workflow_version (workflow, version, fingerprint, document, created_at)
SELECT @workflow, newest_version, @fingerprint::text, @document::bytea, now()
FROM moved
RETURNING workflow, version, fingerprint, document, created_at;
