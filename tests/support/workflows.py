"""Small definitions that tests of the engine share."""

from typing import Any

Json = Any


def one_task(name: str = "one", **more: Json) -> Json:
    """A workflow of a single task step `work`."""
    step = {"name": "work", "task": "do.it", **more}
    return {"workflow": name, "steps": [step]}


def chain(name: str = "chain", length: int = 3, queue: str = "default") -> Json:
    """Task steps in a row, `s0` and so on."""
    return {
        "workflow": name,
        "steps": [{"name": f"s{n}", "task": f"t{n}", "queue": queue} for n in range(length)],
    }


def one_wait(name: str = "waiting", **more: Json) -> Json:
    """A workflow of a single wait step `wait` for the signal `go`."""
    return {"workflow": name, "steps": [{"name": "wait", "wait": {"signal": "go", **more}}]}
