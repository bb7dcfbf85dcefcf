-- When each of these workers was seen last.
SELECT worker.queue, worker.worker_id, worker.seen_at
FROM unnest(@queues::text[], @worker_ids::text[]) AS wanted (queue, worker_id)
JOIN worker ON worker.queue = wanted.queue AND worker.worker_id = wanted.worker_id;
