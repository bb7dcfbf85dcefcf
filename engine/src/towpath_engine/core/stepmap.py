"""The steps of a run as a mapping that a decision derives in the size of its changes.

A plain dictionary would be copied whole for every event. This one shares its base between
versions and keeps the changes since beside it; when these have grown, base and changes are merged
once, which an event pays for only in its share. It also knows the open steps, so that a token is
found without looking at the settled ones.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeGuard

from towpath_engine.core.model import Step
from towpath_engine.core.states import OPEN_STEP

OVERLAY_MAX: Final = 64
"""Changes kept beside the base before both are merged."""


def _is_step_map(steps: Mapping[str, Step]) -> "TypeGuard[StepMap]":
    return isinstance(steps, StepMap)


class StepMap(Mapping[str, Step]):
    """An immutable mapping of path to step. Build it with `of`, derive it with `derive`."""

    __slots__ = ("_base", "_length", "_overlay", "open")

    def __init__(
        self,
        base: Mapping[str, Step],
        overlay: Mapping[str, Step | None],
        opened: Mapping[str, Step],
        length: int,
    ) -> None:
        self._base = base
        self._overlay = overlay
        self._length = length
        self.open: Mapping[str, Step] = opened
        """The steps that are neither settled nor pending, by path."""

    @classmethod
    def of(cls, steps: Mapping[str, Step]) -> "StepMap":
        """The same mapping as a StepMap: itself when it already is one."""
        if _is_step_map(steps):
            return steps
        opened = {path: step for path, step in steps.items() if step.status in OPEN_STEP}
        return cls(dict(steps), {}, opened, len(steps))

    def derive(self, changed: Iterable[Step], forgotten: Iterable[str] = ()) -> "StepMap":
        """The mapping with `changed` put in and the paths `forgotten` taken out."""
        overlay: dict[str, Step | None] = dict(self._overlay)
        opened = dict(self.open)
        length = self._length
        for step in changed:
            if step.path not in self and overlay.get(step.path) is None:
                length += 1
            overlay[step.path] = step
            if step.status in OPEN_STEP:
                opened[step.path] = step
            else:
                opened.pop(step.path, None)
        for path in forgotten:
            if overlay.get(path) is not None or (path in self._base and path not in overlay):
                length -= 1
            overlay[path] = None
            opened.pop(path, None)
        base = self._base
        if len(overlay) > OVERLAY_MAX:
            merged = {**base, **overlay}
            base = {path: step for path, step in merged.items() if step is not None}
            overlay = {}
        return StepMap(base, overlay, opened, length)

    def find(self, path: str) -> Step | None:
        """The step, or None; quicker than `get` for one that is absent."""
        if path in self._overlay:
            return self._overlay[path]
        return self._base.get(path)

    def __getitem__(self, path: str) -> Step:
        if path in self._overlay:
            step = self._overlay[path]
            if step is None:
                raise KeyError(path)
            return step
        return self._base[path]

    def __iter__(self) -> Iterator[str]:
        overlay = self._overlay
        yield from (path for path in self._base if path not in overlay)
        yield from (path for path, step in overlay.items() if step is not None)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"StepMap({dict(self)!r})"
