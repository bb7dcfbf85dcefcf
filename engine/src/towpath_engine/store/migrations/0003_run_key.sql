-- runs: before the code
-- Uniqueness of keys among live runs, and of request ids: in tables of their own, so that the
-- run tables can be partitioned and sharded by run id.

CREATE TABLE run_key (
  workflow text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  run_id uuid NOT NULL,
  PRIMARY KEY (workflow, key)
);

CREATE TABLE run_request (
  workflow text COLLATE "C" NOT NULL,
  request_id text COLLATE "C" NOT NULL,
  run_id uuid NOT NULL,
  PRIMARY KEY (workflow, request_id)
);
