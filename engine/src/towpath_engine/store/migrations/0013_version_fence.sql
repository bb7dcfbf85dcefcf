-- runs: before the code
-- Ends a statement that did not find all the rows that it relies on, before it writes any more.

CREATE FUNCTION require_count(counted bigint, expected bigint, rule text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF counted <> expected THEN
    RAISE EXCEPTION 'only % of % rows fulfil %', counted, expected, rule USING CONSTRAINT = rule;
  END IF;
  RETURN true;
END
$$;
