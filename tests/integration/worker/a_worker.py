"""A worker process for tests: `python a_worker.py URL PREFIX FOLDER`.

The task `hold` makes a file in FOLDER when it starts and ends when the file `go` is there.
"""

import os
import sys
from pathlib import Path

from towpath_worker import Context, Worker

url, prefix, folder = sys.argv[1:]
worker = Worker("inventory", nats_url=url, prefix=prefix, slots=2)


@worker.task("hold")
def hold(ctx: Context) -> int:
    (Path(folder) / f"started-{os.getpid()}").touch()
    while not (Path(folder) / "go").exists() and not ctx.cancelled.wait_in_thread(0.01):
        pass
    return os.getpid()


if __name__ == "__main__":
    worker.run()
