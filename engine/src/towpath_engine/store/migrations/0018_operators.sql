-- runs: before the code
-- What a retry and a redrive must know of a settled run: from where it came to a step, and the
-- highest visit that a redrive has taken back, above which visits count on.

ALTER TABLE step ADD COLUMN came_from text COLLATE "C";

ALTER TABLE run
  ADD COLUMN visit_base integer NOT NULL DEFAULT 0,
  ADD CONSTRAINT run_visit_base_not_negative CHECK (visit_base >= 0);
