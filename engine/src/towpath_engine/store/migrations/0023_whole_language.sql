-- runs: before the code
-- What parts, undoing and children need of runs and steps. An engine of before writes none of the
-- new columns, and its runs have none of the new kinds and statuses.

ALTER TABLE run
  ADD COLUMN parent_step text COLLATE "C",
  ADD COLUMN depth integer NOT NULL DEFAULT 0,
  ADD COLUMN ending text COLLATE "C",
  ADD COLUMN compensation text COLLATE "C",
  ADD COLUMN undo_top text COLLATE "C",
  ADD CONSTRAINT run_parent_step_of_a_parent CHECK (
    parent_step IS NULL OR parent_run_id IS NOT NULL),
  ADD CONSTRAINT run_depth_not_negative CHECK (depth >= 0),
  ADD CONSTRAINT run_ending_known CHECK (ending IN ('failed', 'cancelled', 'timed_out')),
  ADD CONSTRAINT run_compensation_known CHECK (
    compensation IN ('compensating', 'compensated', 'compensation_failed'));

ALTER TABLE step
  ADD COLUMN parts text,
  ADD COLUMN errors bytea,
  ADD COLUMN last_step text COLLATE "C",
  ADD COLUMN reached bytea NOT NULL DEFAULT '',
  ADD COLUMN undo_below text COLLATE "C",
  ADD COLUMN child_run_id uuid,
  DROP CONSTRAINT step_path_length,
  DROP CONSTRAINT step_kind_known,
  DROP CONSTRAINT step_status_known,
  DROP CONSTRAINT step_token_with_live_attempt,
  DROP CONSTRAINT step_waiting_for_with_status,
  DROP CONSTRAINT step_waiting_for_known,
  DROP CONSTRAINT step_wait_has_an_instant,
  DROP CONSTRAINT step_held_by_with_status,
  DROP CONSTRAINT step_payload_sizes,
  -- Ten levels of names, with indices; the key of an index has room for it.
  ADD CONSTRAINT step_path_length CHECK (octet_length(path) BETWEEN 1 AND 2048),
  ADD CONSTRAINT step_kind_known CHECK (kind IN (
    'task', 'wait', 'sleep', 'choice', 'pass', 'parallel', 'map', 'run', 'branch', 'item')),
  ADD CONSTRAINT step_status_known CHECK (status IN (
    'pending', 'ready', 'dispatched', 'running', 'waiting',
    'completed', 'failed', 'skipped', 'cancelled', 'cancelling',
    'compensating', 'compensated', 'compensation_failed')),
  ADD CONSTRAINT step_token_with_live_attempt CHECK (
    (token IS NULL AND status NOT IN ('dispatched', 'cancelling'))
    OR (token IS NOT NULL
      AND status IN ('dispatched', 'running', 'cancelling', 'compensating'))),
  -- Wholes and their parts run without an attempt of their own.
  ADD CONSTRAINT step_runs_an_attempt_or_parts CHECK (
    status <> 'running' OR (token IS NULL) = (kind IN ('parallel', 'map', 'branch', 'item'))),
  ADD CONSTRAINT step_waiting_for_with_status CHECK (
    (waiting_for IS NOT NULL) = (status = 'waiting') OR status = 'compensating'),
  ADD CONSTRAINT step_waiting_for_known CHECK (waiting_for IN (
    'delay', 'sleep', 'signal', 'backoff', 'repeat', 'released', 'child')),
  ADD CONSTRAINT step_wait_has_an_instant CHECK (
    waiting_for IN ('signal', 'child') OR waiting_for IS NULL OR wake_at IS NOT NULL),
  ADD CONSTRAINT step_awaited_child_named CHECK (
    waiting_for <> 'child' OR child_run_id IS NOT NULL),
  ADD CONSTRAINT step_held_by_with_status CHECK (
    (held_by IS NOT NULL) = (status = 'ready') OR status = 'compensating'),
  -- An undo is held back, or waits, or has an attempt: something moves it on.
  ADD CONSTRAINT step_undo_has_a_stage CHECK (
    status <> 'compensating' OR num_nonnulls(held_by, waiting_for, token) = 1),
  ADD CONSTRAINT step_payload_sizes CHECK (
    octet_length(input) <= 16777216 AND octet_length(output) <= 16777216
    AND octet_length(last_output) <= 16777216 AND octet_length(error) <= 1048576
    AND octet_length(last_error) <= 1048576 AND octet_length(progress) <= 1048576
    AND octet_length(errors) <= 16777216);

-- Settled is settled, but for an operator's will, and for undoing. An undo whose input can't be
-- made fails in the decision that began it.
DROP TRIGGER run_settled_is_settled ON run;
CREATE TRIGGER run_settled_is_settled BEFORE UPDATE ON run
  FOR EACH ROW WHEN (
    OLD.settled_at IS NOT NULL AND NEW.revival_count <= OLD.revival_count
    AND NOT (
      NEW.status = 'compensating'
      AND OLD.status IN ('cancelled', 'timed_out', 'compensation_failed')))
  EXECUTE FUNCTION refuse_settled_change();

DROP TRIGGER step_settled_is_settled ON step;
CREATE TRIGGER step_settled_is_settled BEFORE UPDATE ON step
  FOR EACH ROW WHEN (
    OLD.settled_at IS NOT NULL AND NEW.visit <= OLD.visit
    AND NEW.revival_count <= OLD.revival_count
    AND NOT (
      NEW.status IN ('compensating', 'compensation_failed')
      AND OLD.status IN ('completed', 'compensation_failed')))
  EXECUTE FUNCTION refuse_settled_change();

-- Children that are waited for: a sweep looks for those whose end, or whose start, was not told.
-- And attempts that are being cancelled: one for those whose dispatch nobody may have seen.
ALTER TABLE open_step
  ADD COLUMN child_run_id uuid,
  ADD COLUMN cancelling boolean NOT NULL DEFAULT false;
CREATE INDEX open_step_by_child ON open_step (run_id, path) WHERE child_run_id IS NOT NULL;
CREATE INDEX open_step_by_cancelling ON open_step (run_id, path) WHERE cancelling;
