"""Talks to another system. Here that is a folder with a file for each job.

Plain functions run in threads, so they may block.
"""

import base64
from pathlib import Path

import msgspec
from msgspec import Struct

from towpath_worker import Context, Worker

JOBS = Path("jobs")

worker = Worker("jobs")


class Order(Struct):
    name: str
    polls: int


class Job(Struct):
    """A job of the other system: `polls` more looks find it running."""

    name: str
    polls: int


class Submitted(Struct):
    job: str


class Look(Struct):
    job: str
    asked_before: int


class Found(Struct):
    state: str


@worker.task("jobs.submit")
def submit(order: Order, ctx: Context) -> Submitted:
    job = base64.urlsafe_b64encode(ctx.idempotency_key.encode()).decode()
    JOBS.mkdir(exist_ok=True)
    path = JOBS / job
    if not path.exists():
        path.write_bytes(msgspec.json.encode(Job(order.name, order.polls)))
    return Submitted(job)


@worker.task("jobs.look")
def look(question: Look, ctx: Context) -> Found:
    if question.asked_before == 1 and ctx.attempt == 1:
        raise ConnectionError("the other system hung up")
    job = read(question.job)
    if question.asked_before < job.polls:
        return Found("running")
    return Found("broken" if job.name == "bad" else "done")


@worker.task("jobs.fetch")
def fetch(submitted: Submitted) -> str:
    return f"the report on {read(submitted.job).name}"


def read(job: str) -> Job:
    return msgspec.json.decode((JOBS / job).read_bytes(), type=Job)
