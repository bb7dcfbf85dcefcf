-- runs: before the code
-- A row a step, by path. Its only index is its key, so that every update is heap-only; whatever
-- must be found by state stands in open_step, narrow and short-lived.

CREATE TABLE step (
  run_id uuid NOT NULL,
  path text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  visit integer NOT NULL,
  attempt integer NOT NULL,
  iteration integer NOT NULL,
  release_count integer NOT NULL,
  token text COLLATE "C",
  dispatch_no integer NOT NULL,
  queue text COLLATE "C",
  task text COLLATE "C",
  input bytea,
  output bytea,
  last_output bytea,
  error bytea,
  last_error bytea,
  progress bytea,
  worker_id text,
  waiting_for text COLLATE "C",
  signal text COLLATE "C",
  wake_at timestamptz,
  ready_at timestamptz,
  dispatched_at timestamptz,
  started_at timestamptz,
  settled_at timestamptz,
  dispatch_deadline_at timestamptz,
  attempt_deadline_at timestamptz,
  heartbeat_deadline_at timestamptz,
  step_deadline_at timestamptz,
  PRIMARY KEY (run_id, path),
  CONSTRAINT step_path_length CHECK (octet_length(path) BETWEEN 1 AND 1024),
  CONSTRAINT step_kind_known CHECK (kind IN ('task', 'wait', 'sleep', 'choice', 'pass')),
  CONSTRAINT step_status_known CHECK (status IN (
    'pending', 'ready', 'dispatched', 'running', 'waiting',
    'completed', 'failed', 'skipped', 'cancelled',
    'compensating', 'compensated', 'compensation_failed')),
  CONSTRAINT step_settled_at_with_status CHECK ((settled_at IS NOT NULL) = (status IN (
    'completed', 'failed', 'skipped', 'cancelled', 'compensated', 'compensation_failed'))),
  CONSTRAINT step_token_with_live_attempt CHECK (
    (token IS NULL AND status NOT IN ('dispatched', 'running'))
    OR (token IS NOT NULL AND status IN ('dispatched', 'running', 'compensating'))),
  CONSTRAINT step_token_length CHECK (octet_length(token) BETWEEN 1 AND 128),
  CONSTRAINT step_live_attempt_has_queue CHECK (token IS NULL OR queue IS NOT NULL),
  CONSTRAINT step_waiting_for_with_status CHECK ((waiting_for IS NOT NULL) = (status = 'waiting')),
  CONSTRAINT step_waiting_for_known CHECK (waiting_for IN (
    'delay', 'sleep', 'signal', 'backoff', 'repeat', 'released')),
  CONSTRAINT step_awaited_signal_named CHECK (waiting_for <> 'signal' OR signal IS NOT NULL),
  CONSTRAINT step_wait_has_an_instant CHECK (
    waiting_for = 'signal' OR waiting_for IS NULL OR wake_at IS NOT NULL),
  CONSTRAINT step_counters_not_negative CHECK (
    visit >= 1 AND attempt >= 0 AND iteration >= 0 AND release_count >= 0 AND dispatch_no >= 0),
  CONSTRAINT step_payload_sizes CHECK (
    octet_length(input) <= 16777216 AND octet_length(output) <= 16777216
    AND octet_length(last_output) <= 16777216 AND octet_length(error) <= 1048576
    AND octet_length(last_error) <= 1048576 AND octet_length(progress) <= 1048576)
) WITH (fillfactor = 50);

CREATE TABLE open_step (
  run_id uuid NOT NULL,
  path text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  token text COLLATE "C",
  queue text COLLATE "C",
  level smallint NOT NULL,
  dispatched_at timestamptz,
  reported boolean NOT NULL,
  signal text COLLATE "C",
  PRIMARY KEY (run_id, path),
  CONSTRAINT open_step_is_open CHECK (status NOT IN (
    'completed', 'failed', 'skipped', 'cancelled', 'compensated', 'compensation_failed'))
);

-- The audit of dispatches pages through those without a sign of a worker, not through waits.
CREATE INDEX open_step_by_dispatch ON open_step (run_id, path)
  WHERE token IS NOT NULL AND NOT reported;
