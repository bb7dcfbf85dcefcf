-- runs: before the code
-- Log lines of attempts, a row a report. A row is marked cut when older ones of its attempt were
-- dropped.

CREATE TABLE log (
  run_id uuid NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY,
  path text COLLATE "C" NOT NULL,
  attempt integer NOT NULL,
  token text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL,
  lines bytea NOT NULL,
  cut boolean NOT NULL DEFAULT false,
  PRIMARY KEY (run_id, number),
  CONSTRAINT log_lines_size CHECK (octet_length(lines) <= 16777216)
);

CREATE INDEX log_by_attempt ON log (run_id, path, attempt, number);
