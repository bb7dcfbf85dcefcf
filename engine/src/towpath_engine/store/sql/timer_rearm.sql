-- Set timers to what the caller, who holds the locks of the runs, believes to be their instants,
-- but never later than the rows say. A pure wait, a delayed start and the rest of a split decision
-- can't be pre-empted by a message.
INSERT INTO timer (run_id, path, due_at, preemptible, partition)
SELECT
  believed.run_id, believed.path, real.due_at,
  CASE
    WHEN believed.path = '' THEN run.cursor IS NULL AND run.start_at IS NULL
    ELSE coalesce(step.waiting_for, 'signal') = 'signal'
      OR step.wake_at IS DISTINCT FROM real.due_at
  END,
  believed.partition
FROM unnest(@run_id::uuid[], @path::text[], @due_at::timestamptz[], @partition::smallint[])
  AS believed (run_id, path, due_at, partition)
JOIN run ON run.id = believed.run_id AND run.settled_at IS NULL
LEFT JOIN step ON step.run_id = believed.run_id AND step.path = believed.path
  AND step.settled_at IS NULL
CROSS JOIN LATERAL (
  SELECT least(
    believed.due_at, step.wake_at, step.dispatch_deadline_at, step.attempt_deadline_at,
    step.heartbeat_deadline_at, step.step_deadline_at,
    CASE
      WHEN believed.path <> '' THEN NULL
      WHEN run.cursor IS NOT NULL THEN run.last_at
      ELSE coalesce(run.start_at, run.deadline_at)
    END) AS due_at
) AS real
WHERE real.due_at IS NOT NULL
ORDER BY believed.run_id, believed.path
ON CONFLICT (run_id, path) DO UPDATE SET
  due_at = excluded.due_at,
  preemptible = excluded.preemptible;
