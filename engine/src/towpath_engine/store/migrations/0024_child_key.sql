-- runs: before the code
-- A step that starts a child run knows the key that the child is to have, and live children that
-- nobody waits for any more are looked for. An engine of before starts no children.

ALTER TABLE step ADD COLUMN child_key text;

CREATE INDEX run_live_child ON run (id)
  WHERE settled_at IS NULL AND parent_step IS NOT NULL;
