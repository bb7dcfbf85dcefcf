-- runs: before the code
-- Messages that could not be decoded, placed or applied. The one row of dead_letter_total is the
-- count that the cap is held against; locking it makes concurrent writers take turns.

CREATE TABLE dead_letter (
  id uuid PRIMARY KEY,
  at timestamptz NOT NULL,
  reason text COLLATE "C" NOT NULL,
  message text NOT NULL,
  subject text NOT NULL,
  headers text NOT NULL,
  body bytea NOT NULL,
  run_id text COLLATE "C",
  step text COLLATE "C"
);

CREATE INDEX dead_letter_by_run ON dead_letter (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE dead_letter_total (
  one boolean PRIMARY KEY DEFAULT true,
  row_count bigint NOT NULL,
  byte_count bigint NOT NULL,
  CONSTRAINT dead_letter_total_is_one_row CHECK (one),
  CONSTRAINT dead_letter_total_not_negative CHECK (row_count >= 0 AND byte_count >= 0)
);

INSERT INTO dead_letter_total (row_count, byte_count) VALUES (0, 0);
