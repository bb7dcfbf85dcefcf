-- Signals of a run by their numbers, in the order that is asked for, as many as fit; the first does.
SELECT number, name, payload, message_id, sent_by, received_at
FROM (
  SELECT
    signal.*,
    sum(octet_length(payload)) OVER (ORDER BY place) AS total_bytes,
    row_number() OVER (ORDER BY place) AS nth
  FROM unnest(@numbers::integer[]) WITH ORDINALITY AS asked (wanted, place)
  JOIN signal ON signal.run_id = @run_id::uuid AND signal.number = asked.wanted
) AS page
WHERE total_bytes <= @bytes_max::bigint OR nth = 1;
