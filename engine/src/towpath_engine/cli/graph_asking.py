"""What `towpath graph` asks an engine: a version of a workflow, or a run with its steps.

A run may have a million rows. Its own steps are read whole, of those below its parallel and map
steps so many as a person would wait for; what is left out is said on stderr.
"""

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask
from towpath_engine.cli.graph import Drawn, stored_definition
from towpath_engine.cli.output import print_notice
from towpath_engine.cli.targets import parse_target
from towpath_engine.core.model import Parts
from towpath_engine.drawing.picture import picture_of
from towpath_engine.drawing.seen import RunSeen, StepRow
from towpath_protocol import replies
from towpath_worker import Client

PAGES_MAX: Final = 250
"""Pages of 200 steps that are read below parallel and map steps."""
HISTORY_PAGES_MAX: Final = 25
"""Pages of 200 transitions, from the first one on, that tell which way the run took."""


class _Chosen(Struct, frozen=True):
    chosen: str


def drawn_workflow(arguments: Arguments) -> Drawn:
    """A version of a deployed workflow."""
    view = ask(
        arguments, lambda client: client.workflow(arguments.drawn, version=arguments.version)
    )
    name = f"{view.workflow} version {view.version}"
    definition = stored_definition(bytes(view.definition), name=name)
    picture = picture_of(definition, title=name)
    return Drawn(picture=picture, workflow=view.workflow, version=view.version)


def drawn_run(arguments: Arguments) -> Drawn:
    """A run."""
    target = parse_target(arguments.drawn)

    async def question(client: Client) -> tuple[replies.RunView, replies.WorkflowView, _Reading]:
        run = await (await target.handle(client)).get(steps=False)
        reading = _Reading(client, run)
        await reading.read()
        return run, await client.workflow(run.workflow, version=run.version), reading

    run, workflow, reading = ask(arguments, question)
    name = f"{run.workflow} version {run.version}"
    definition = stored_definition(bytes(workflow.definition), name=name)
    for notice in reading.notices:
        print_notice(notice)
    picture = picture_of(definition, title=f"run {run.run_id} of {name}", seen=reading.seen)
    return Drawn(picture=picture, workflow=run.workflow, version=run.version, run_id=run.run_id)


class _Reading:
    """Reads the rows of one run."""

    def __init__(self, client: Client, run: replies.RunView) -> None:
        self.seen = RunSeen(status=run.status)
        self.notices: list[str] = []
        self._client = client
        self._run_id = run.run_id
        self._pages = 0

    async def read(self) -> None:
        """All that is drawn."""
        wholes: list[str] = []
        async for step in self._steps(under=None):
            self.seen.add_row(step_row(step))
            if step.parts is not UNSET and step.parts.started and "#" not in step.step:
                wholes.append(step.step)
        self._pages = 0
        for whole in wholes:
            async for step in self._steps(under=whole):
                self.seen.add_row(step_row(step))
            if self._pages >= PAGES_MAX:
                self.notices.append(
                    f"more than {PAGES_MAX * 200:,} steps lie below {', '.join(wholes)}: the "
                    "numbers at those in them are of the first ones"
                )
                break
        await self._read_history()

    async def _steps(self, *, under: str | None) -> AsyncIterator[replies.StepView]:
        cursor: str | None = None
        while under is None or self._pages < PAGES_MAX:
            page = await self._client.get(
                self._run_id, inner=False, under=under, steps_cursor=cursor
            )
            self._pages += 1
            for step in page.steps:
                yield step
            cursor = page.steps_cursor
            if cursor is None:
                return

    async def _read_history(self) -> None:
        after: int | None = 0
        for _ in range(HISTORY_PAGES_MAX):
            page = await self._client.history(self._run_id, after_seq=after or 0)
            for each in page.transitions:
                if each.step is not None:
                    self.seen.add_transition(
                        path=each.step, what=each.what, before=each.from_, after=each.to
                    )
            after = page.next_after_seq
            if after is None:
                return
        # Only of the beginning is it known which step came last.
        self.seen.last = None


def step_row(step: replies.StepView) -> StepRow:
    """What is drawn of a step."""
    parts = step.parts
    return StepRow(
        path=step.step,
        kind=step.kind,
        status=step.status,
        visit=1 if step.visit is UNSET else step.visit,
        attempt=step.attempt,
        iteration=step.iteration,
        waiting_for=None if step.waiting_for is UNSET else step.waiting_for,
        started_at=step.started_at,
        settled_at=step.settled_at,
        error_type=None if step.error is None else step.error.type,
        chosen=_chosen(step),
        child_run_id=None if step.child_run_id is UNSET else step.child_run_id,
        parts=None
        if parts is UNSET
        else Parts(total=parts.total, started=parts.started, open=parts.open, failed=parts.failed),
    )


def _chosen(step: replies.StepView) -> str | None:
    if step.kind != "choice" or step.output is None:
        return None
    try:
        return msgspec.json.decode(step.output, type=_Chosen).chosen
    except msgspec.MsgspecError:
        return None
