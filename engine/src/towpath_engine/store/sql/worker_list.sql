-- A page of workers by (queue, id), of one queue or of all.
SELECT queue, worker_id, tasks, slots, running, sdk, draining, first_seen_at, seen_at
FROM worker
WHERE queue >= @first_queue::text
  AND (queue, worker_id) > (@after_queue::text, @after_id::text)
  AND (@queue::text IS NULL OR queue = @queue)
ORDER BY queue, worker_id
LIMIT @limit::bigint;
