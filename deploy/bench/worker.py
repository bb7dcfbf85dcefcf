"""The bench's one worker process: trivial steps, and when each began and ended.

On SIGTERM it writes what it saw as JSON: for each step but the first of a run, when it began
(monotonic seconds) and how long after the end of the step before it, in seconds.
"""

import json
import sys
import time
from pathlib import Path

from deploy.demo.lifeline import stop_with_parent
from towpath_worker import Context, Worker, run_workers

SLOTS = 64


def main() -> None:
    """Serve the queue `bench` until SIGTERM."""
    worker = Worker("bench", slots=SLOTS)
    ended: dict[str, float] = {}
    gaps: list[tuple[float, float]] = []

    @worker.task("bench.step")
    async def step(data: dict[str, int], ctx: Context) -> dict[str, int]:
        began = time.monotonic()
        before = ended.get(ctx.run_id)
        if before is not None:
            gaps.append((began, began - before))
        ended[ctx.run_id] = time.monotonic()
        return {"n": data["n"] + 1}

    run_workers(worker)
    del step
    Path(sys.argv[1]).write_text(json.dumps(gaps), encoding="utf-8")


if __name__ == "__main__":
    stop_with_parent()
    main()
