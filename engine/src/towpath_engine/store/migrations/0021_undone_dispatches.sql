-- runs: before the code
-- How many dispatches of a queue are undone is counted here, whatever the stream says. Of equal keys
-- the index keeps one copy, so that it costs a dispatch next to nothing.

CREATE INDEX open_step_by_queue ON open_step (queue) WHERE token IS NOT NULL;
