-- Lift a pause and count the change; says whether there was one.
WITH lifted AS (
  DELETE FROM pause WHERE scope = @scope::text AND name = @name::text
  RETURNING 1
), counted AS (
  UPDATE pause_epoch SET number = number + 1 WHERE EXISTS (SELECT 1 FROM lifted)
)
SELECT EXISTS (SELECT 1 FROM lifted);
