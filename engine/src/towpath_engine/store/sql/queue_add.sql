-- Remember queues; those known are left alone.
INSERT INTO queue (name, created_at)
SELECT name, now()
FROM unnest(@names::text[]) AS fresh (name)
ORDER BY name
ON CONFLICT (name) DO NOTHING;
