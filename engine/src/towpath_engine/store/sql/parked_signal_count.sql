-- How many signals are parked, no further than the limit.
SELECT count(*) FROM (SELECT 1 FROM parked_signal LIMIT @limit::bigint) AS parked;
