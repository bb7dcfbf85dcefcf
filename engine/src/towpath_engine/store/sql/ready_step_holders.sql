-- What holds steps back, each with the most urgent level of these: one look at the index for each
-- holder, however many steps it holds. Of windows, of workflows and of the rest up to a limit each: a
-- queue whose backlog nobody sees, since others took its place, would never start again.
WITH RECURSIVE part (place, low, high) AS (
  VALUES (1, 'window:', 'window;'), (2, 'workflow:', 'workflow;'), (3, '', 'window:')
), holder AS (
  SELECT part.place, part.high, 1 AS number, earliest.held_by, earliest.level
  FROM part CROSS JOIN LATERAL (
    SELECT held_by, level FROM ready_step
    WHERE ready_step.held_by >= part.low AND ready_step.held_by < part.high
    ORDER BY held_by, level LIMIT 1
  ) AS earliest
  UNION ALL
  SELECT holder.place, holder.high, holder.number + 1, following.held_by, following.level
  FROM holder CROSS JOIN LATERAL (
    SELECT held_by, level FROM ready_step
    WHERE ready_step.held_by > holder.held_by AND ready_step.held_by < holder.high
    ORDER BY held_by, level LIMIT 1
  ) AS following
  WHERE holder.number < @limit::bigint
)
SELECT held_by, level FROM holder ORDER BY place, held_by;
