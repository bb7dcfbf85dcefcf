"""The servers that several folders of tests share: nothing else."""

from tests.support.postgres import postgres_url

__all__ = ["postgres_url"]
