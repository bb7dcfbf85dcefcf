-- runs: before the code
-- Which engine owns which partition of P_IN, which engines live, and whose a timer is. Leases are
-- for speed alone: what an engine writes is fenced by the version of the run.

CREATE TABLE engine (
  id uuid PRIMARY KEY,
  standing text COLLATE "C" NOT NULL,
  expires_at timestamptz NOT NULL,
  CONSTRAINT engine_standing_known CHECK (standing IN ('fit', 'cut_off', 'stopping'))
);

-- No owner: free. An instant that has passed: its owner is dead, or could not let go in order.
CREATE TABLE partition_lease (
  partition smallint PRIMARY KEY,
  engine_id uuid,
  expires_at timestamptz NOT NULL,
  CONSTRAINT partition_lease_known CHECK (partition BETWEEN 0 AND 15)
) WITH (fillfactor = 50);

INSERT INTO partition_lease (partition, engine_id, expires_at)
SELECT number, NULL, '-infinity' FROM generate_series(0, 15) AS number;

-- As the server partitions P_IN: FNV-1a of 32 bits over the text of the run id.
CREATE FUNCTION partition_of(run_id uuid) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  digits bytea := convert_to(run_id::text, 'UTF8');
  value bigint := 2166136261;
BEGIN
  FOR place IN 0 .. octet_length(digits) - 1 LOOP
    value := ((value # get_byte(digits, place)) * 16777619) & 4294967295;
  END LOOP;
  RETURN value % 16;
END
$$;

-- Engines say the partition themselves. Those of the release before do not, in an upgrade.
ALTER TABLE timer ADD COLUMN partition smallint;
UPDATE timer SET partition = partition_of(run_id);
ALTER TABLE timer ALTER COLUMN partition SET NOT NULL;

CREATE FUNCTION fill_timer_partition() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.partition := partition_of(NEW.run_id);
  RETURN NEW;
END
$$;

CREATE TRIGGER timer_has_a_partition BEFORE INSERT ON timer
  FOR EACH ROW WHEN (NEW.partition IS NULL) EXECUTE FUNCTION fill_timer_partition();

-- The owner of a partition sweeps its timers.
DROP INDEX timer_by_due_at;
CREATE INDEX timer_by_partition ON timer (partition, due_at);
