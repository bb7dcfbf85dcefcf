-- Which open steps the tokens of these runs belong to.
SELECT open_step.run_id, open_step.token, open_step.path
FROM unnest(@run_id::uuid[], @token::text[]) AS asked (run_id, token)
JOIN open_step ON open_step.run_id = asked.run_id AND open_step.token = asked.token;
