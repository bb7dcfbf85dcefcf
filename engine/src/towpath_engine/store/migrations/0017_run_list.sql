-- runs: before the code
-- The filters of run.list by three indexes instead of four: a list without a status is merged from
-- its statuses, so (status, ...) serves what (created_at, ...) did, and (workflow, status, ...) what
-- (workflow, ...) did. Every change of a status writes to all indexes of run: it costs one less.

CREATE INDEX run_by_workflow_status ON run (workflow, status, created_at DESC, id DESC);
DROP INDEX run_by_workflow;
DROP INDEX run_by_created;
