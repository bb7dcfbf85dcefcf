-- Disarm all timers of runs that have settled.
DELETE FROM timer WHERE run_id = ANY(@run_ids::uuid[]);
