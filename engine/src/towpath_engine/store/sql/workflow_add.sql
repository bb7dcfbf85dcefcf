-- Make sure that the workflow has a row to lock.
INSERT INTO workflow (name, newest_version) VALUES (@name::text, 0) ON CONFLICT (name) DO NOTHING;
