"""One engine a test, with a schema and a prefix of its own, and an outsider who talks to it."""

from tests.integration.services.conftest import (
    engine,
    jetstream_url,
    own_jetstream,
    postgres_url,
    prefix,
    schema,
    settings,
    wire,
)

__all__ = [
    "engine", "jetstream_url", "own_jetstream", "postgres_url", "prefix", "schema", "settings",
    "wire",
]  # fmt: skip
