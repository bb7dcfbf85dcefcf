-- runs: before the code
-- What operators do to runs: a pause, a dispatch that is held back, and the one way in which a
-- settled run or step may change again, which is counted.

ALTER TABLE run
  ADD COLUMN paused_at timestamptz,
  ADD COLUMN paused_by text,
  ADD COLUMN pause_reason text,
  ADD COLUMN revival_count integer NOT NULL DEFAULT 0,
  ADD CONSTRAINT run_pause_has_an_instant CHECK (
    paused_at IS NOT NULL OR (paused_by IS NULL AND pause_reason IS NULL)),
  ADD CONSTRAINT run_revival_count_not_negative CHECK (revival_count >= 0);

ALTER TABLE step
  ADD COLUMN revival_count integer NOT NULL DEFAULT 0,
  ADD COLUMN held_by text COLLATE "C",
  ADD CONSTRAINT step_held_by_with_status CHECK ((held_by IS NOT NULL) = (status = 'ready')),
  ADD CONSTRAINT step_revival_count_not_negative CHECK (revival_count >= 0);

ALTER TABLE transition ADD COLUMN payload bytea;

DROP TRIGGER run_settled_is_settled ON run;
CREATE TRIGGER run_settled_is_settled BEFORE UPDATE ON run
  FOR EACH ROW WHEN (OLD.settled_at IS NOT NULL AND NEW.revival_count <= OLD.revival_count)
  EXECUTE FUNCTION refuse_settled_change();

DROP TRIGGER step_settled_is_settled ON step;
CREATE TRIGGER step_settled_is_settled BEFORE UPDATE ON step
  FOR EACH ROW WHEN (
    OLD.settled_at IS NOT NULL AND NEW.visit <= OLD.visit
    AND NEW.revival_count <= OLD.revival_count)
  EXECUTE FUNCTION refuse_settled_change();
