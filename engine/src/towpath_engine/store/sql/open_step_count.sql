-- How many open steps a run has.
SELECT count(*) FROM open_step WHERE run_id = @run_id::uuid;
