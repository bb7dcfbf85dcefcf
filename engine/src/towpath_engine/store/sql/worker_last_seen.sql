-- When each of these workers was seen last, and whether it drained then.
SELECT worker.queue, worker.worker_id, worker.seen_at, worker.draining
FROM unnest(@queues::text[], @worker_ids::text[]) AS wanted (queue, worker_id)
JOIN worker ON worker.queue = wanted.queue AND worker.worker_id = wanted.worker_id;
