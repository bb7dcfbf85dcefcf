"""Runs as this engine last wrote them: valid exactly while the row still has that version.

Only runs of partitions that the engine owns are kept: of the others somebody else writes the next
version.
"""

from collections import OrderedDict
from collections.abc import Callable

from towpath_engine.core.kept import Kept
from towpath_engine.core.model import Run
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.core.stepmap import StepMap
from towpath_engine.metrics import Metrics

_SHARE_MAX = 2
"""A run may take one part in so many of the cache. One that is not kept is read anew for each
event, with all that is open: of a map of 10,000 items at once that is 20,000 rows."""
_ROW_BYTES = 1_024
_SIGNAL_BYTES = 512
"""What a kept signal costs beside its payload, about."""


class RunCache:
    """Bounded by number of runs and by their payload bytes; the least recently used go first.

    `owns` says of a run id whether its run is kept.
    """

    def __init__(
        self,
        *,
        runs_max: int,
        bytes_max: int,
        metrics: Metrics,
        owns: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._hits = metrics.run_cache.labels(result="hit")
        self._misses = metrics.run_cache.labels(result="miss")
        self._stale = metrics.run_cache.labels(result="stale")
        self._owns = owns
        self._era = 0
        self._runs_max = runs_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._runs: OrderedDict[str, tuple[Run, int, int]] = OrderedDict()

    def get(self, run_id: str, version: int) -> Run | None:
        """The run, if the cached copy has this version."""
        entry = self._runs.get(run_id)
        if entry is None:
            self._misses.inc()
            return None
        if entry[0].version != version:
            self._stale.inc()
            self.drop(run_id)
            return None
        self._hits.inc()
        self._runs.move_to_end(run_id)
        return entry[0]

    def newest(self, run_id: str) -> Run | None:
        """The cached copy, which may be out of date: whoever writes it back must fence it.

        None, too, for a copy of the time before the last `doubt`.
        """
        entry = self._runs.get(run_id)
        if entry is None or entry[2] != self._era:
            return None
        self._hits.inc()
        self._runs.move_to_end(run_id)
        return entry[0]

    def put(self, run: Run) -> None:
        """Keep the run as it was just committed. Settled runs are not, nor one that would
        take more than half of the cache."""
        self.drop(run.id)
        if run.status in SETTLED_RUN:
            return
        if not self._owns(run.id):
            return
        size = _size(run)
        if size > self._bytes_max // _SHARE_MAX:
            return
        self._runs[run.id] = (run, size, self._era)
        self._bytes += size
        while len(self._runs) > self._runs_max or self._bytes > self._bytes_max:
            _, (_, freed, _) = self._runs.popitem(last=False)
            self._bytes -= freed

    def drop(self, run_id: str) -> None:
        """Forget the run."""
        entry = self._runs.pop(run_id, None)
        if entry is not None:
            self._bytes -= entry[1]

    def drop_older(self, run_id: str, version: int) -> None:
        """Forget the run unless the copy has at least this version."""
        entry = self._runs.get(run_id)
        if entry is not None and entry[0].version < version:
            self.drop(run_id)

    def doubt(self) -> None:
        """Partitions have moved: look at each run's version once before its copy is used again."""
        self._era += 1

    def __len__(self) -> int:
        return len(self._runs)


def _size(run: Run) -> int:
    """Bytes that the copy keeps alive, about; a step takes some 800 bytes beside its payloads.

    Nothing is summed here: walking every step or kept signal on every commit would make an event
    cost more the longer a run lives.
    """
    steps = StepMap.of(run.steps)
    size = len(run.input) + len(run.context) + len(run.metadata)
    size += _ROW_BYTES * (1 + len(steps)) + steps.payload_bytes
    kept = Kept.of(run.kept)
    return size + kept.size + _SIGNAL_BYTES * len(kept)
