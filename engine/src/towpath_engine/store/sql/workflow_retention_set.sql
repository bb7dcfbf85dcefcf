-- Say how long settled runs of a workflow are kept.
UPDATE workflow SET retention_ms = @retention_ms::bigint WHERE name = @name::text;
