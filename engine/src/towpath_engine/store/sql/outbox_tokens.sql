-- Which of these tokens have a dispatch that is not confirmed.
SELECT DISTINCT token FROM outbox WHERE token = ANY(@tokens::text[]);
