-- When the unconfirmed dispatches of these tokens were written: their ids are UUIDs of version 7, which
-- begin with the time.
SELECT token, min(id::text) AS first_id FROM outbox
WHERE token = ANY(@tokens::text[])
GROUP BY token;
