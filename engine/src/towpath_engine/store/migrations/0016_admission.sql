-- runs: before the code
-- What holds dispatches back: pauses of workflows, versions, tasks and queues, and what waits for
-- them or for room in the window of its queue.

CREATE TABLE pause (
  scope text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL,
  by text,
  reason text,
  PRIMARY KEY (scope, name),
  CONSTRAINT pause_scope_known CHECK (scope IN ('workflow', 'version', 'task', 'queue'))
);

-- Counts the changes of that table: who knows its number knows the pauses.
CREATE TABLE pause_epoch (
  one boolean PRIMARY KEY DEFAULT true,
  number bigint NOT NULL,
  CONSTRAINT pause_epoch_is_one_row CHECK (one)
);

INSERT INTO pause_epoch (number) VALUES (0);

-- Pauses are read in the transaction that writes a dispatch. The lock is held until it commits, and
-- who changes pauses takes it alone: so nothing decided before a pause is written after it was
-- answered. The number is read in a snapshot of its own, taken when the lock is held.
CREATE FUNCTION require_pause_epoch(expected bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  found bigint;
BEGIN
  IF expected IS NULL THEN
    RETURN true;
  END IF;
  PERFORM pg_advisory_xact_lock_shared('pause_epoch'::regclass::oid::bigint);
  SELECT number INTO found FROM pause_epoch;
  IF found IS DISTINCT FROM expected THEN
    RAISE EXCEPTION 'the pauses have changed' USING CONSTRAINT = 'pause_epoch_expected';
  END IF;
  RETURN true;
END
$$;

-- Ready steps by what holds them and, with an empty path, runs that may not begin. Narrow and apart
-- from step, whose updates stay heap-only. What the pause of a run holds is found by its resume.
CREATE TABLE ready_step (
  run_id uuid NOT NULL,
  path text COLLATE "C" NOT NULL,
  held_by text COLLATE "C" NOT NULL,
  queue text COLLATE "C",
  level smallint NOT NULL,
  ready_at timestamptz NOT NULL,
  PRIMARY KEY (run_id, path)
);

CREATE INDEX ready_step_by_level ON ready_step (held_by, level, ready_at, run_id, path);
CREATE INDEX ready_step_by_time ON ready_step (held_by, ready_at, run_id, path);

ALTER TABLE run
  ADD COLUMN held_by text COLLATE "C",
  ADD CONSTRAINT run_held_by_while_pending CHECK (held_by IS NULL OR status = 'pending');
