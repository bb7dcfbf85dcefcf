-- The one clock.
SELECT clock_timestamp();
