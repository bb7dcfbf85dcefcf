-- The newest versions of workflows; unknown ones are absent.
SELECT name, newest_version FROM workflow
WHERE name = ANY(@names::text[]) AND newest_version > 0;
