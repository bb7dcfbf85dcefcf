-- Arm timers. A stored instant only ever moves to an earlier one, so that renewing a deadline
-- costs no write; one that has passed by the run's last transition (@last_at) is void and is
-- replaced. A timer that fires too early is armed again with timer_rearm.
INSERT INTO timer (run_id, path, due_at, preemptible)
SELECT fresh.run_id, fresh.path, fresh.due_at, fresh.preemptible
FROM unnest(
  @run_id::uuid[], @path::text[], @due_at::timestamptz[], @preemptible::boolean[],
  @last_at::timestamptz[]
) AS fresh (run_id, path, due_at, preemptible, last_at)
LEFT JOIN timer AS stored ON stored.run_id = fresh.run_id AND stored.path = fresh.path
WHERE stored.due_at IS NULL
  OR fresh.due_at < stored.due_at
  OR (stored.due_at <= fresh.last_at AND fresh.due_at <> stored.due_at)
  OR fresh.preemptible <> stored.preemptible
ORDER BY fresh.run_id, fresh.path
ON CONFLICT (run_id, path) DO UPDATE SET
  due_at = excluded.due_at,
  preemptible = excluded.preemptible;
