-- Say that an engine lives, give back its partitions, renew those it owns, take free ones up to its
-- share. Returns a row a partition that it owns now, or one row without a partition.
-- Only what nobody owns, or whose lease has passed, is taken, and rows that another tick has in hand
-- are left to it: no partition ever has two owners. An owner whose lease has passed does not renew
-- it; it may only take the partition anew, and learns that it has.
-- Shares differ by one at most: of the engines of the best standing that any live one has, those
-- that came first have one more. All parts see the tables as they were, and no two touch a row.
WITH moment AS (
  SELECT coalesce(@now::timestamptz, now()) AS now,
    coalesce(@now::timestamptz, now()) + make_interval(secs => @lease_seconds::float8) AS expires_at
), me AS (
  INSERT INTO engine (id, standing, expires_at)
  SELECT @engine_id::uuid, @standing::text, moment.expires_at FROM moment
  ON CONFLICT (id) DO UPDATE SET standing = excluded.standing, expires_at = excluded.expires_at
), buried AS (
  DELETE FROM engine USING moment
  WHERE engine.expires_at < moment.now - interval '1 hour' AND engine.id <> @engine_id::uuid
), living AS (
  SELECT engine.id, engine.standing FROM engine, moment
  WHERE engine.expires_at > moment.now AND engine.id <> @engine_id::uuid
    AND engine.standing <> 'stopping'
  UNION ALL
  SELECT @engine_id::uuid, @standing::text WHERE @standing::text <> 'stopping'
), able AS (
  SELECT id FROM living
  WHERE standing = 'fit' OR NOT EXISTS (SELECT 1 FROM living WHERE standing = 'fit')
), share AS (
  SELECT CASE
    WHEN coalesce(bool_or(id = @engine_id::uuid), false)
    THEN 16 / count(*)
      + CASE WHEN count(*) FILTER (WHERE id < @engine_id::uuid) < 16 % count(*) THEN 1 ELSE 0 END
    ELSE 0 END AS target
  FROM able
), given AS (
  UPDATE partition_lease SET
    engine_id = CASE WHEN partition = ANY(@released::smallint[]) THEN NULL ELSE engine_id END,
    expires_at = '-infinity'
  WHERE engine_id = @engine_id::uuid
    AND partition = ANY(@released::smallint[] || @abandoned::smallint[])
), kept AS (
  UPDATE partition_lease SET expires_at = moment.expires_at
  FROM moment
  WHERE engine_id = @engine_id::uuid AND partition_lease.expires_at > moment.now
    AND partition <> ALL(@released::smallint[] || @abandoned::smallint[])
  RETURNING partition
), free AS (
  SELECT partition, CASE WHEN engine_id IS NULL THEN 'released' ELSE 'expired' END AS origin
  FROM partition_lease
  WHERE (engine_id IS NULL OR expires_at <= (SELECT now FROM moment))
    AND partition <> ALL(@released::smallint[] || @abandoned::smallint[])
  ORDER BY partition
  LIMIT (SELECT greatest(0, target - (SELECT count(*) FROM kept)) FROM share)
  FOR UPDATE SKIP LOCKED
), taken AS (
  UPDATE partition_lease SET engine_id = @engine_id::uuid, expires_at = moment.expires_at
  FROM free, moment
  WHERE partition_lease.partition = free.partition
  RETURNING partition_lease.partition, free.origin
), mine AS (
  SELECT partition, NULL AS origin FROM kept
  UNION ALL
  SELECT partition, origin FROM taken
)
SELECT mine.partition, mine.origin, share.target,
  (SELECT count(*) FROM living) AS engines
FROM share LEFT JOIN mine ON true;
