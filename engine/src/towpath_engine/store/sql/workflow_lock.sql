-- Deploys of one workflow take turns: its newest version, locked.
SELECT newest_version FROM workflow WHERE name = @name::text FOR NO KEY UPDATE;
