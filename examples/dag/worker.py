"""The tasks of a nightly report."""

from msgspec import Struct

from towpath_worker import Worker

worker = Worker("nightly")

ROWS = {"sales": 120, "stock": 40, "weather": 7}


class Source(Struct):
    source: str
    day: str


class Rows(Struct):
    rows: int


class Report(Struct):
    rows: int
    weather: int


@worker.task("nightly.extract")
async def extract(source: Source) -> Rows:
    return Rows(ROWS[source.source])


@worker.task("nightly.clean")
async def clean(table: Rows) -> Rows:
    return Rows(table.rows - table.rows // 10)


@worker.task("nightly.publish")
async def publish(report: Report) -> str:
    return f"{report.rows} rows, {report.weather} of weather"
