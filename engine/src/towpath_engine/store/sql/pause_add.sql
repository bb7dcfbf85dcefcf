-- Add a pause and count the change; says whether there was none before. One that is there stays as
-- it is: who paused first, and why.
WITH added AS (
  INSERT INTO pause (scope, name, at, by, reason)
  VALUES (@scope::text, @name::text, now(), @by::text, @reason::text)
  ON CONFLICT (scope, name) DO NOTHING
  RETURNING 1
), counted AS (
  UPDATE pause_epoch SET number = number + 1 WHERE EXISTS (SELECT 1 FROM added)
)
SELECT EXISTS (SELECT 1 FROM added);
