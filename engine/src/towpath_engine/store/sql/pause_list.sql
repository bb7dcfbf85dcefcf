-- Every pause, with the number that says which pauses these are; one row without a pause when there
-- is none.
SELECT pause_epoch.number AS epoch, pause.scope, pause.name, pause.at, pause.by, pause.reason
FROM pause_epoch LEFT JOIN pause ON true
ORDER BY pause.scope, pause.name;
