"""What an engine would export of a history that a test has made up, replayed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tests.support.scenario import Story
from towpath_engine.core.effects import KeepSignal
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.payloads import RowsOutput, whole_payloads
from towpath_engine.core.replay import Turn, replay

SIGNS_OF_LIFE: Final[dict[str, Any]] = {
    "worker_id": None, "progress": None, "heartbeat_deadline_at": None,
}  # fmt: skip
"""Fields of a step that change without a transition, and are no part of a replay."""


def exported(story: Story) -> list[Transition]:
    """The story's transitions with whole payloads, as run.history answers them."""
    outputs = {
        path: RowsOutput(visit=step.visit, size=len(step.output), value=step.output)
        for path, step in story.steps.items()
        if step.output is not None
    }
    kept = [effect.signal for effect in story.effects if isinstance(effect, KeepSignal)]
    signals = {signal.number: signal for signal in kept}
    payloads = whole_payloads(story.history, outputs=outputs, signals=signals)
    return [
        replace(row, payload=payload) for row, payload in zip(story.history, payloads, strict=True)
    ]


def replayed(begin: Run, history: Sequence[Transition]) -> list[Turn]:
    """All turns of the replay. Of the run that a start made, the history says when it begins."""
    return list(replay(replace(begin, start_at=None), history))


def check_replays(begin: Run, story: Story) -> list[Turn]:
    """The replay is the same to the end, and so are the run and its steps."""
    turns = replayed(begin, exported(story))
    assert turns[-1].difference is None, turns[-1].difference
    assert sum(len(turn.recorded) for turn in turns) == len(story.history)
    steps: dict[str, Step] = {}
    for turn in turns:
        steps.update((step.path, step) for step in turn.changed)
    assert _lifeless(steps) == _lifeless(story.steps)
    assert _alone(turns[-1].after) == _alone(story.run)
    return turns


def _lifeless(steps: Mapping[str, Step]) -> dict[str, Step]:
    return {path: replace(step, **SIGNS_OF_LIFE) for path, step in steps.items()}


def _alone(run: Run) -> Run:
    """Without its steps, without the version, which counts heartbeats, too, and without what is
    left to do: a rest that comes to nothing is no event of a history, done or not."""
    return replace(run, steps={}, version=0, cursor=None)


def payload_of(row: Transition) -> dict[str, Any]:
    """The stored payload, decoded; empty when there is none."""
    return {} if row.payload is None else msgspec.json.decode(row.payload, type=dict[str, Any])
