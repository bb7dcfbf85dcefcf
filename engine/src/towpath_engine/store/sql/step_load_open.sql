-- The open steps of runs: found through open_step, so that settled ones cost nothing.
SELECT
    step.run_id, step.path, step.kind, step.status, step.visit, step.attempt, step.iteration,
    step.release_count, step.revival_count, step.came_from, step.token, step.dispatch_no,
    step.queue, step.task, step.input,
    step.output, step.last_output, step.error, step.last_error, step.progress, step.worker_id,
    step.waiting_for, step.held_by, step.signal, step.wake_at, step.ready_at, step.dispatched_at,
    step.started_at, step.settled_at, step.dispatch_deadline_at, step.attempt_deadline_at,
    step.heartbeat_deadline_at, step.step_deadline_at, step.parts, step.errors, step.last_step,
    step.reached, step.undo_below, step.child_run_id, step.child_key
FROM open_step
JOIN step ON step.run_id = open_step.run_id AND step.path = open_step.path
WHERE open_step.run_id = ANY(@run_ids::uuid[]);
