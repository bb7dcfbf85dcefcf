"""How a run is named on the command line, by its id or as `WORKFLOW/KEY`; and a dead letter."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_protocol.ids import RUN_ID_PATTERN
from towpath_worker import Client, RunHandle

_RUN_ID: Final = re.compile(RUN_ID_PATTERN)


class Target(Struct, frozen=True, kw_only=True):
    """A run: `run_id`, or `workflow` and `key`."""

    run_id: str | None = None
    workflow: str | None = None
    key: str | None = None

    async def handle(self, client: Client) -> RunHandle:
        """Its handle: of the live run with the key, else of the newest one that had it.

        Raises CommandError (NOT_FOUND) when no run has or had the key.
        """
        if self.run_id is not None:
            return client.handle(self.run_id)
        try:
            return await client.find(self.workflow or "", self.key or "")
        except LookupError as error:
            raise CommandError(Exit.NOT_FOUND, str(error)) from error


def parse_target(text: str | None) -> Target:
    """A key may have slashes, a workflow has none. Raises CommandError (USAGE)."""
    workflow, slash, key = (text or "").partition("/")
    if slash and workflow and key:
        return Target(workflow=workflow, key=key)
    if slash or not _RUN_ID.fullmatch(workflow):
        raise CommandError(
            Exit.USAGE,
            f"{text!r} is not a run id, nor WORKFLOW/KEY: `towpath list` shows both",
        )
    return Target(run_id=workflow)


def check_letter_ids(ids: Sequence[str]) -> None:
    """Raises CommandError (USAGE) for what cannot be the id of a dead letter."""
    for text in ids:
        if not _RUN_ID.fullmatch(text):
            raise CommandError(
                Exit.USAGE,
                f"{text!r} is not the id of a dead letter: `towpath dead-letters list` shows them",
            )
