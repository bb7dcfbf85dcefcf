-- runs: before the code
-- The second line of defence for "settled is settled": the WHEN conditions are evaluated in the
-- executor, so the function is only ever called to refuse.

CREATE FUNCTION refuse_settled_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is settled and can''t change', TG_TABLE_NAME
    USING ERRCODE = 'check_violation', CONSTRAINT = TG_TABLE_NAME || '_settled_is_settled',
      TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;

CREATE TRIGGER run_settled_is_settled BEFORE UPDATE ON run
  FOR EACH ROW WHEN (OLD.settled_at IS NOT NULL) EXECUTE FUNCTION refuse_settled_change();

CREATE TRIGGER step_settled_is_settled BEFORE UPDATE ON step
  FOR EACH ROW WHEN (OLD.settled_at IS NOT NULL AND NEW.visit <= OLD.visit)
  EXECUTE FUNCTION refuse_settled_change();
