-- How many workers of each queue were seen lately and do not drain, and when any was seen last.
SELECT
  wanted.queue,
  count(worker.queue) FILTER (
    WHERE worker.seen_at >= @live_since::timestamptz AND NOT worker.draining) AS live,
  max(worker.seen_at) AS last_seen_at
FROM unnest(@queues::text[]) AS wanted (queue)
LEFT JOIN worker ON worker.queue = wanted.queue
GROUP BY wanted.queue;
