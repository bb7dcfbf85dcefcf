-- runs: before the code
-- What finds settled runs when their time is over, with all that belongs to them.

-- How long settled runs of the workflow are kept. None: as the engine's setting says; 0: for ever.
ALTER TABLE workflow
  ADD COLUMN retention_ms bigint,
  ADD CONSTRAINT workflow_retention_not_negative CHECK (retention_ms >= 0);

-- A run enters it when it settles and at no other change, and leaves it when an operator revives it.
CREATE INDEX run_by_settled ON run (workflow, settled_at, id) WHERE settled_at IS NOT NULL;
CREATE INDEX run_by_parent ON run (parent_run_id) WHERE parent_run_id IS NOT NULL;

-- A run may be the answer to more requests than the one that started it.
CREATE INDEX run_request_by_run ON run_request (run_id);

DROP INDEX dead_letter_by_run;
CREATE INDEX dead_letter_by_run ON dead_letter (run_id, step, id DESC) WHERE run_id IS NOT NULL;
