-- runs: before the code
-- The history of a run, append-only. cause and data are JSON text.

CREATE TABLE transition (
  run_id uuid NOT NULL,
  seq bigint NOT NULL,
  at timestamptz NOT NULL,
  what text COLLATE "C" NOT NULL,
  step text COLLATE "C",
  status_before text COLLATE "C",
  status_after text COLLATE "C",
  attempt integer,
  iteration integer,
  visit integer,
  token text COLLATE "C",
  cause text NOT NULL,
  data text,
  PRIMARY KEY (run_id, seq),
  CONSTRAINT transition_seq_positive CHECK (seq >= 1),
  CONSTRAINT transition_what_named CHECK (
    (step IS NULL AND what LIKE 'run-%') OR (step IS NOT NULL AND what LIKE 'step-%')),
  CONSTRAINT transition_sizes CHECK (octet_length(cause) <= 1048576 AND octet_length(data) <= 1048576)
);
