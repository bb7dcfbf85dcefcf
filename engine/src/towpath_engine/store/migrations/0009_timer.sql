-- runs: before the code
-- The next instant of each open step and, with an empty path, of the run itself. Narrow and apart
-- from step: an index on a column of step would end its heap-only updates.

CREATE TABLE timer (
  run_id uuid NOT NULL,
  path text COLLATE "C" NOT NULL,
  due_at timestamptz NOT NULL,
  preemptible boolean NOT NULL,
  PRIMARY KEY (run_id, path)
);

CREATE INDEX timer_by_due_at ON timer (due_at);
