-- Mark kept signals as taken. Fenced: one that a wait took before matches no row.
UPDATE signal SET consumed_by = taken.consumed_by
FROM unnest(@run_id::uuid[], @number::integer[], @consumed_by::text[])
  AS taken (run_id, number, consumed_by)
WHERE signal.run_id = taken.run_id AND signal.number = taken.number
  AND signal.consumed_by IS NULL;
