-- runs: before the code
-- A worker that drains says so: it takes no more, and once it holds nothing it is gone. An engine of
-- before writes no such column, and its workers count as they did.

ALTER TABLE worker ADD COLUMN draining boolean NOT NULL DEFAULT false;
