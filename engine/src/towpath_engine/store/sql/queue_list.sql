-- Every queue, by name.
SELECT name FROM queue ORDER BY name;
