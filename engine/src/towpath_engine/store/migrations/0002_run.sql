-- runs: before the code
-- A row a run. No index names a column that changes with every decision, and pages are half
-- empty: that keeps the updates heap-only. Status is indexed and changes only now and then.

CREATE TABLE run (
  id uuid PRIMARY KEY,
  status text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  seq bigint NOT NULL,
  workflow text COLLATE "C" NOT NULL,
  workflow_version integer NOT NULL,
  key text COLLATE "C",
  request_id text COLLATE "C",
  priority smallint NOT NULL,
  tags text NOT NULL,
  input bytea NOT NULL,
  context bytea NOT NULL,
  metadata bytea NOT NULL,
  output bytea,
  error bytea,
  triggered_by text,
  traceparent text,
  restarted_from uuid,
  parent_run_id uuid,
  cancelled_by text,
  cancel_reason text,
  created_at timestamptz NOT NULL,
  start_at timestamptz,
  started_at timestamptz,
  settled_at timestamptz,
  deadline_at timestamptz,
  last_at timestamptz,
  cursor text COLLATE "C",
  last_step text COLLATE "C",
  signal_count integer NOT NULL,
  reached bytea NOT NULL,
  CONSTRAINT run_status_known CHECK (status IN (
    'pending', 'running', 'waiting', 'compensating',
    'completed', 'failed', 'cancelled', 'timed_out', 'compensated', 'compensation_failed')),
  CONSTRAINT run_settled_at_with_status CHECK ((settled_at IS NOT NULL) = (status IN (
    'completed', 'failed', 'cancelled', 'timed_out', 'compensated', 'compensation_failed'))),
  CONSTRAINT run_begun_has_started_at CHECK (
    status NOT IN ('running', 'waiting', 'compensating') OR started_at IS NOT NULL),
  CONSTRAINT run_pending_has_not_started CHECK (status <> 'pending' OR started_at IS NULL),
  CONSTRAINT run_output_only_completed CHECK (output IS NULL OR status = 'completed'),
  CONSTRAINT run_priority_known CHECK (priority BETWEEN 0 AND 3),
  CONSTRAINT run_counters_not_negative CHECK (version >= 0 AND seq >= 0 AND signal_count >= 0),
  CONSTRAINT run_key_length CHECK (octet_length(key) BETWEEN 1 AND 1024),
  CONSTRAINT run_request_id_length CHECK (octet_length(request_id) BETWEEN 1 AND 1024),
  CONSTRAINT run_payload_sizes CHECK (
    octet_length(input) <= 16777216 AND octet_length(output) <= 16777216
    AND octet_length(context) <= 1048576 AND octet_length(metadata) <= 1048576
    AND octet_length(error) <= 1048576)
) WITH (fillfactor = 50);

-- The filters of run.list, newest first.
CREATE INDEX run_by_created ON run (created_at DESC, id DESC);
CREATE INDEX run_by_workflow ON run (workflow, created_at DESC, id DESC);
CREATE INDEX run_by_status ON run (status, created_at DESC, id DESC);
CREATE INDEX run_by_key ON run (key, created_at DESC, id DESC) WHERE key IS NOT NULL;

CREATE TABLE run_tag (
  run_id uuid NOT NULL,
  tag text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (run_id, tag)
);

CREATE INDEX run_tag_by_tag ON run_tag (tag, created_at DESC, run_id DESC);
