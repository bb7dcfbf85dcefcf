-- Remember queues, unless there would be too many: then none of them. Those known are left alone.
-- Whoever holds the lock of queue_lock.sql sees all that were added before.
WITH fresh AS (
  SELECT wanted.name
  FROM unnest(@names::text[]) AS wanted (name)
  WHERE NOT EXISTS (SELECT 1 FROM queue WHERE queue.name = wanted.name)
), room AS (
  SELECT count(*) > 0 AND count(*) + (SELECT count(*) FROM queue) > @count_max::bigint AS is_full
  FROM fresh
), added AS (
  INSERT INTO queue (name, created_at)
  SELECT fresh.name, now() FROM fresh, room
  WHERE NOT room.is_full
  ORDER BY fresh.name
  ON CONFLICT (name) DO NOTHING
  RETURNING name
)
SELECT room.is_full, coalesce((SELECT array_agg(name ORDER BY name) FROM added), '{}') AS added
FROM room;
