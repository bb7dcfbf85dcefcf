"""What became of a step in a run, in lines: of one row its times and attempts, of many their
numbers."""

from collections.abc import Iterator

from towpath_engine.core.definition import MapSpec, StepDef
from towpath_engine.drawing.seen import PlaceSeen, StepRow, counted
from towpath_engine.drawing.words import cut, instant, span


def seen_of_step(step: StepDef, place: PlaceSeen) -> tuple[str, ...]:
    """The lines of a step that the run came to."""
    lines = list(_items(place)) if isinstance(step.spec, MapSpec) else []
    lines += _one(place.only) if place.only is not None else _many(place)
    return tuple(cut(line) for line in lines)


def seen_of_branch(place: PlaceSeen) -> tuple[str, ...]:
    """The lines of a branch that the run came to."""
    return tuple(cut(line) for line in (_many(place) if place.only is None else _one(place.only)))


def _one(row: StepRow) -> Iterator[str]:
    words = [row.status.replace("_", " ")]
    if row.waiting_for is not None and row.status == "waiting":
        words = [f"waiting for {row.waiting_for}"]
    if row.error_type is not None:
        words.append(row.error_type)
    if row.attempt > 1:
        words.append(f"attempt {row.attempt:,}")
    if row.iteration > 0:
        words.append(f"iteration {row.iteration + 1:,}")
    yield ", ".join(words)
    started, took = instant(row.started_at), span(row.started_at, row.settled_at)
    if started is not None:
        yield f"{started}, took {took}" if took is not None else f"since {started}"
    if row.child_run_id is not None:
        yield row.child_run_id


def _many(place: PlaceSeen) -> Iterator[str]:
    if place.counts:
        yield counted(place.counts)
    if place.attempts_max > 1:
        yield f"up to attempt {place.attempts_max:,}"


def _items(place: PlaceSeen) -> Iterator[str]:
    """How many items there are, and how they stand."""
    parts = place.parts
    yield f"{parts.total:,} items"
    ended = parts.started - parts.open - parts.failed
    words = [f"{ended:,} {'done' if place.left or 'running' in place.counts else 'ended'}"]
    if parts.failed:
        words.append(f"{parts.failed:,} failed")
    if parts.open:
        words.append(f"{parts.open:,} open")
    yield ", ".join(words)
