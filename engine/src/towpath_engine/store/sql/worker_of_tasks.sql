-- How many workers of each queue were seen lately and do not drain, how many of them have the task (or
-- name no task at all), and when the last of them was seen.
SELECT
  wanted.queue,
  wanted.task,
  count(worker.queue) AS live,
  count(worker.queue) FILTER (
    WHERE worker.tasks = '' OR wanted.task = ANY(string_to_array(worker.tasks, E'\n'))) AS able,
  max(worker.seen_at) AS last_seen_at
FROM unnest(@queues::text[], @tasks::text[]) AS wanted (queue, task)
LEFT JOIN worker ON worker.queue = wanted.queue
  AND worker.seen_at >= @live_since::timestamptz AND NOT worker.draining
GROUP BY wanted.queue, wanted.task;
