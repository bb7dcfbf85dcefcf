-- What was last seen of a stream.
SELECT stream, created, last_seq FROM stream_epoch WHERE stream = @stream::text;
