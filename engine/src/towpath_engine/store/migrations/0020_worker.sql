-- runs: before the code
-- Workers as their heartbeats said: a row a worker and queue, written at most once a second.

CREATE TABLE worker (
  queue text COLLATE "C" NOT NULL,
  worker_id text COLLATE "C" NOT NULL,
  tasks text NOT NULL,
  slots bigint NOT NULL,
  running integer NOT NULL,
  sdk text NOT NULL,
  first_seen_at timestamptz NOT NULL,
  seen_at timestamptz NOT NULL,
  PRIMARY KEY (queue, worker_id),
  CONSTRAINT worker_counts_not_negative CHECK (slots >= 0 AND running >= 0)
) WITH (fillfactor = 50);
