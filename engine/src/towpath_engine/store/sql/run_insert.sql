-- Insert new runs, in order of id. A run that exists already is left alone and not returned.
INSERT INTO run (
  id, status, version, seq, workflow, workflow_version, key, request_id, priority, tags, input,
  context, metadata, output, error, triggered_by, traceparent, restarted_from, parent_run_id,
  cancelled_by, cancel_reason, paused_at, paused_by, pause_reason, held_by, revival_count,
  visit_base, created_at, start_at, started_at, settled_at, deadline_at, last_at, cursor, last_step,
  signal_count, reached, parent_step, depth, ending, compensation, undo_top)
SELECT
  id, status, version, seq, workflow, workflow_version, key, request_id, priority, tags, input,
  context, metadata, output, error, triggered_by, traceparent, restarted_from, parent_run_id,
  cancelled_by, cancel_reason, paused_at, paused_by, pause_reason, held_by, revival_count,
  visit_base, created_at, start_at, started_at, settled_at, deadline_at, last_at, cursor, last_step,
  signal_count, reached, parent_step, depth, ending, compensation, undo_top
FROM unnest(
  @id::uuid[], @status::text[], @version::bigint[], @seq::bigint[], @workflow::text[],
  @workflow_version::integer[], @key::text[], @request_id::text[], @priority::smallint[],
  @tags::text[], @input::bytea[], @context::bytea[], @metadata::bytea[], @output::bytea[],
  @error::bytea[], @triggered_by::text[], @traceparent::text[], @restarted_from::uuid[],
  @parent_run_id::uuid[], @cancelled_by::text[], @cancel_reason::text[],
  @paused_at::timestamptz[], @paused_by::text[], @pause_reason::text[], @held_by::text[],
  @revival_count::integer[], @visit_base::integer[], @created_at::timestamptz[],
  @start_at::timestamptz[], @started_at::timestamptz[],
  @settled_at::timestamptz[], @deadline_at::timestamptz[], @last_at::timestamptz[],
  @cursor::text[], @last_step::text[], @signal_count::integer[], @reached::bytea[],
  @parent_step::text[], @depth::integer[], @ending::text[], @compensation::text[],
  @undo_top::text[]
) AS fresh (
  id, status, version, seq, workflow, workflow_version, key, request_id, priority, tags, input,
  context, metadata, output, error, triggered_by, traceparent, restarted_from, parent_run_id,
  cancelled_by, cancel_reason, paused_at, paused_by, pause_reason, held_by, revival_count,
  visit_base, created_at, start_at, started_at, settled_at, deadline_at, last_at, cursor, last_step,
  signal_count, reached, parent_step, depth, ending, compensation, undo_top)
ORDER BY id
ON CONFLICT (id) DO NOTHING
RETURNING id;
