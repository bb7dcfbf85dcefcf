-- The first held steps by level, then time, and those that have waited longest; each once.
(
  SELECT run_id, path, level, ready_at FROM ready_step
  WHERE held_by = @held_by::text
  ORDER BY level, ready_at, run_id, path
  LIMIT @by_level::bigint
)
UNION
(
  SELECT run_id, path, level, ready_at FROM ready_step
  WHERE held_by = @held_by::text
  ORDER BY ready_at, run_id, path
  LIMIT @by_time::bigint
);
