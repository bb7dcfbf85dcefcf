-- Delete runs with all that belongs to them. The caller has locked them and seen that they are
-- settled; one that is not stays, with nothing of it deleted.
WITH doomed AS (
  SELECT id FROM run WHERE id = ANY(@ids::uuid[]) AND settled_at IS NOT NULL
), tags AS (
  DELETE FROM run_tag USING doomed WHERE run_tag.run_id = doomed.id
), requests AS (
  DELETE FROM run_request USING doomed WHERE run_request.run_id = doomed.id
), steps AS (
  DELETE FROM step USING doomed WHERE step.run_id = doomed.id
), opened AS (
  DELETE FROM open_step USING doomed WHERE open_step.run_id = doomed.id
), timers AS (
  DELETE FROM timer USING doomed WHERE timer.run_id = doomed.id
), signals AS (
  DELETE FROM signal USING doomed WHERE signal.run_id = doomed.id
), logs AS (
  DELETE FROM log USING doomed WHERE log.run_id = doomed.id
), history AS (
  DELETE FROM transition USING doomed WHERE transition.run_id = doomed.id
)
DELETE FROM run USING doomed WHERE run.id = doomed.id;
