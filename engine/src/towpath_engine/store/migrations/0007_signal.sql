-- runs: before the code
-- Signals of runs, kept until a wait takes them and remembered for the life of the run; the ids
-- of signals by key, remembered for seven days; signals for runs that do not exist yet.

CREATE TABLE signal (
  run_id uuid NOT NULL,
  number integer NOT NULL,
  name text COLLATE "C" NOT NULL,
  payload bytea NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  sent_by text,
  received_at timestamptz NOT NULL,
  consumed_by text COLLATE "C",
  PRIMARY KEY (run_id, number),
  CONSTRAINT signal_message_id_once UNIQUE (run_id, name, message_id),
  CONSTRAINT signal_number_positive CHECK (number >= 1),
  CONSTRAINT signal_message_id_length CHECK (octet_length(message_id) BETWEEN 1 AND 1024),
  CONSTRAINT signal_payload_size CHECK (octet_length(payload) <= 16777216)
);

CREATE INDEX signal_kept ON signal (run_id, number) WHERE consumed_by IS NULL;

CREATE TABLE keyed_signal (
  workflow text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  run_id uuid NOT NULL,
  taken_at timestamptz NOT NULL,
  PRIMARY KEY (workflow, key, name, message_id),
  CONSTRAINT keyed_signal_lengths CHECK (
    octet_length(key) BETWEEN 1 AND 1024 AND octet_length(message_id) BETWEEN 1 AND 1024)
);

CREATE INDEX keyed_signal_by_age ON keyed_signal (taken_at);

CREATE TABLE parked_signal (
  id uuid PRIMARY KEY,
  run_id uuid,
  workflow text COLLATE "C",
  key text COLLATE "C",
  name text COLLATE "C" NOT NULL,
  payload bytea NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  sent_by text,
  received_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  CONSTRAINT parked_signal_for_run_or_key CHECK (
    (run_id IS NOT NULL AND workflow IS NULL AND key IS NULL)
    OR (run_id IS NULL AND workflow IS NOT NULL AND key IS NOT NULL)),
  CONSTRAINT parked_signal_sizes CHECK (
    octet_length(payload) <= 16777216 AND octet_length(key) BETWEEN 1 AND 1024
    AND octet_length(message_id) BETWEEN 1 AND 1024)
);

CREATE INDEX parked_signal_by_run ON parked_signal (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX parked_signal_by_key ON parked_signal (workflow, key) WHERE key IS NOT NULL;
