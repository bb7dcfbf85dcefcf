-- runs: before the code
-- Messages written with the decision that wants them, until their publication is confirmed.

CREATE TABLE outbox (
  id uuid PRIMARY KEY,
  run_id uuid NOT NULL,
  token text COLLATE "C",
  subject text NOT NULL,
  msg_id text NOT NULL,
  headers text NOT NULL,
  body bytea NOT NULL,
  publish_after timestamptz NOT NULL,
  CONSTRAINT outbox_body_size CHECK (octet_length(body) <= 16777216)
);

CREATE INDEX outbox_by_token ON outbox (token) WHERE token IS NOT NULL;
CREATE INDEX outbox_by_publish_after ON outbox (publish_after);
