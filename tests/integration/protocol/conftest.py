"""Fixtures of the tests that hold PROTOCOL.md against a real nats-server."""

from tests.support.jetstream import jetstream_url, own_jetstream, prefix

__all__ = ["jetstream_url", "own_jetstream", "prefix"]
