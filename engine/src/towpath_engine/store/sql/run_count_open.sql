-- How many runs are in each status that is not final.
SELECT status, count(*)
FROM run
WHERE status IN ('pending', 'running', 'waiting', 'compensating')
GROUP BY status;
