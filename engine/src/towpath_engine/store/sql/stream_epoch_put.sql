-- Remember what was seen of a stream.
INSERT INTO stream_epoch (stream, created, last_seq)
VALUES (@stream::text, @created::text, @last_seq::bigint)
ON CONFLICT (stream) DO UPDATE SET created = excluded.created, last_seq = excluded.last_seq;
