-- Add a pause and count the change, unless there are @pauses_max of them: made, standing or full. One
-- that is there stays as it is: who paused first, and why. The caller holds the lock of pause_lock.sql,
-- so that the count is exact.
WITH standing AS (
  SELECT 1 FROM pause WHERE scope = @scope::text AND name = @name::text
), added AS (
  INSERT INTO pause (scope, name, at, by, reason)
  SELECT @scope, @name, now(), @by::text, @reason::text
  WHERE NOT EXISTS (SELECT 1 FROM standing)
    AND (SELECT count(*) FROM pause) < @pauses_max::bigint
  RETURNING 1
), counted AS (
  UPDATE pause_epoch SET number = number + 1 WHERE EXISTS (SELECT 1 FROM added)
)
SELECT CASE
  WHEN EXISTS (SELECT 1 FROM standing) THEN 'standing'
  WHEN EXISTS (SELECT 1 FROM added) THEN 'made'
  ELSE 'full'
END;
