-- The dispatches of dead tokens must not be published again.
DELETE FROM outbox
USING unnest(@run_id::uuid[], @token::text[]) AS dead (run_id, token)
WHERE outbox.token = dead.token AND outbox.run_id = dead.run_id;
