-- The totals that the cap is held against, locked: concurrent writers of dead letters take turns.
SELECT row_count, byte_count FROM dead_letter_total FOR NO KEY UPDATE;
