-- Take over sightings of workers, a row a worker and queue. An older sighting changes nothing.
INSERT INTO worker (
  queue, worker_id, tasks, slots, running, sdk, draining, first_seen_at, seen_at)
SELECT queue, worker_id, tasks, slots, running, sdk, draining, seen_at, seen_at
FROM unnest(
  @queue::text[], @worker_id::text[], @tasks::text[], @slots::bigint[], @running::integer[],
  @sdk::text[], @draining::boolean[], @seen_at::timestamptz[]
) AS fresh (queue, worker_id, tasks, slots, running, sdk, draining, seen_at)
ORDER BY queue, worker_id
ON CONFLICT (queue, worker_id) DO UPDATE SET
  tasks = excluded.tasks,
  slots = excluded.slots,
  running = excluded.running,
  sdk = excluded.sdk,
  draining = excluded.draining,
  seen_at = excluded.seen_at
WHERE worker.seen_at <= excluded.seen_at;
