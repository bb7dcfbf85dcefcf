-- Timers of these partitions whose instant has come, the earliest first, behind the last one of the
-- page before. Each partition gives a page at most, whatever is due.
SELECT due.run_id, due.path, due.due_at, due.preemptible
FROM unnest(@partitions::smallint[]) AS owned (partition)
CROSS JOIN LATERAL (
  SELECT run_id, path, due_at, preemptible
  FROM timer
  WHERE timer.partition = owned.partition
    AND due_at <= @before::timestamptz
    AND (due_at, run_id, path)
      > (@after_due_at::timestamptz, @after_run_id::uuid, @after_path::text)
  ORDER BY due_at, run_id, path
  LIMIT @limit::bigint
) AS due
ORDER BY due.due_at, due.run_id, due.path
LIMIT @limit::bigint;
