"""Storage: Postgres, and the same contract over dictionaries. Nothing else imports asyncpg."""
