-- runs: before the code
-- What was last seen of each stream: a change of it means that the stream has lost messages.

CREATE TABLE stream_epoch (
  stream text COLLATE "C" PRIMARY KEY,
  created text NOT NULL,
  last_seq bigint NOT NULL
);
