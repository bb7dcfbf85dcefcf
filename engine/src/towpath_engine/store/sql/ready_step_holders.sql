-- What holds steps back, each with the most urgent level of these: one look at the index for each
-- holder, however many steps it holds.
WITH RECURSIVE holder AS (
  (SELECT held_by, level FROM ready_step ORDER BY held_by, level LIMIT 1)
  UNION ALL
  SELECT following.held_by, following.level
  FROM holder CROSS JOIN LATERAL (
    SELECT held_by, level FROM ready_step
    WHERE ready_step.held_by > holder.held_by
    ORDER BY held_by, level LIMIT 1
  ) AS following
)
SELECT held_by, level FROM holder LIMIT @limit::bigint;
