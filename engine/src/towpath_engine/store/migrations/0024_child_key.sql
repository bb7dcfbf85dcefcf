-- runs: before the code
-- A step that starts a child run knows the key that the child is to have. An engine of before
-- starts no children.

ALTER TABLE step ADD COLUMN child_key text;
