-- Those of these tokens that are live, and whether their attempts are being cancelled.
SELECT open_step.token, open_step.cancelling
FROM unnest(@run_id::uuid[], @token::text[]) AS asked (run_id, token)
JOIN open_step ON open_step.run_id = asked.run_id AND open_step.token = asked.token;
