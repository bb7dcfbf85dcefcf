"""The servers that several folders of tests share, and that no process is left: nothing else."""

from tests.support.leftovers import no_process_is_left
from tests.support.postgres import postgres_url

__all__ = ["no_process_is_left", "postgres_url"]
