-- How many open steps a run has, but for those that are open only because of what is open below them.
SELECT count(*)
FROM open_step
JOIN step ON step.run_id = open_step.run_id AND step.path = open_step.path
WHERE open_step.run_id = @run_id::uuid
  AND step.kind NOT IN ('branch', 'item')
  AND NOT (step.kind IN ('parallel', 'map') AND step.status = 'running');
