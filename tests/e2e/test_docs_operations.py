"""The runbook: each symptom is made on purpose, and the page is followed until it has gone."""

import json
import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.support.eventually import eventually_sync
from tests.support.installation import FIRST_START, ORDER, SALE, Installation
from tests.support.pages import ROOT

# Outages have to be waited for: the whole page takes many minutes.
pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with Installation(tmp_path_factory.mktemp("installation")) as installation:
        yield installation


@pytest.fixture
def here(made: Installation) -> Installation:
    """The installation, whole again before each test."""
    made.begin("nats", "engine-1", "engine-2", "worker")
    made.ready("engine-1", "engine-2")
    return made


def test_the_first_start_ends_with_a_parcel(here: Installation) -> None:
    assert "lamp" in here.type("towpath result order/first")
    assert here.section(FIRST_START)


def test_the_alarms_are_about_metrics_that_exist(here: Installation) -> None:
    here.follow("Health and alarms")
    page = here.reader.changed("http://127.0.0.1:8081/metrics")
    there = set(re.findall(r"^# HELP (\w+)", here.type(f"curl -s {page}"), re.MULTILINE))
    named = set(re.findall(r"towpath_\w+", PAGE)) - {"towpath_owner", "towpath_serve"}
    unknown = {
        name
        for name in named
        if not name.endswith("_password") and name.removesuffix("_bucket") not in there
    }
    assert unknown == set()


def test_a_run_that_nobody_works_on_is_explained(here: Installation) -> None:
    here.end("worker")
    here.start("o-1", "lamp")
    here.follow("A run does not move")


def test_a_queue_that_grows_gets_more_slots(here: Installation) -> None:
    busy = here.folder / "busy"
    busy.touch()
    for number in range(3):
        here.start(f"slow-{number}", "slow")
    blocks = here.section("A queue grows")
    here.reader.follow(blocks[:1])
    busy.unlink()
    here.reader.follow(blocks[1:])
    here.end("worker-2")


def test_a_worker_that_is_stuck_gives_its_step_back(here: Installation) -> None:
    here.start("o-2", "hang")
    here.follow("A worker is stuck")


def test_a_step_that_kills_its_workers_is_taken_away(here: Installation) -> None:
    here.start("o-3", "killer")
    eventually_sync(lambda: not here.reader.terminal("worker").running())
    here.follow("A step kills its workers")


def test_a_bad_deploy_is_held_and_replaced(here: Installation) -> None:
    bad = ORDER.replace("task: shop.pack", 'pass: "${ input.skuu }"').partition("    queue:")[0]
    order = here.folder / "order.yaml"
    order.write_text(bad, encoding="utf-8")
    here.type("towpath deploy order.yaml")
    order.write_text(f"{ORDER}tags: [mended]\n", encoding="utf-8")
    here.start("o-4", "lamp")
    here.follow("A bad deploy")
    assert "completed" in here.type("towpath get order/o-5")


def test_an_undo_that_failed_goes_on_when_its_cause_is_mended(here: Installation) -> None:
    (here.folder / "sale.yaml").write_text(SALE, encoding="utf-8")
    here.type("towpath deploy sale.yaml")
    here.type("""towpath start sale --key s-1 --input '{"sku": "lamp"}'""")
    here.follow("An undo failed")


def test_dispatches_wait_in_postgres_while_the_stream_is_full(here: Installation) -> None:
    here.end("worker", "engine-1", "engine-2")
    for number in "12":
        tiny = f"env TOWPATH_HTTP_PORT=808{number} TOWPATH_STREAM_DISPATCH_BYTES_MAX=40000"
        here.reader.open(f"engine-{number}", f"{tiny} towpath serve --config engine.toml")
    here.ready("engine-1", "engine-2")
    lines = [
        json.dumps(
            {"workflow": "order", "key": f"full-{n}", "input": {"sku": "lamp", "x": "x" * 900}}
        )
        for n in range(1, 61)
    ]
    (here.folder / "many.jsonl").write_text("\n".join(lines), encoding="utf-8")
    here.type("towpath start-many many.jsonl")

    here.follow("A stream is full")

    here.begin("worker")
    assert "lamp" in here.type("towpath result order/full-60")


def test_runs_go_on_when_postgres_is_back(here: Installation) -> None:
    here.start("o-6", "lamp", "--delay-ms 1500")
    here.runner.run(here.postgres.stop())
    blocks = here.section("Postgres is away")
    try:
        here.reader.follow(blocks[:1])
    finally:
        here.runner.run(here.postgres.start())
    here.reader.follow(blocks[1:])


def test_a_full_disk_of_postgres_delays_and_loses_nothing(here: Installation) -> None:
    here.start("disk", "lamp", "--delay-ms 1500")
    here.sql_inside(
        "CREATE FUNCTION towpath.disk_full() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$"
    )
    here.sql_inside(
        "CREATE TRIGGER disk_full BEFORE INSERT ON towpath.transition "
        "EXECUTE FUNCTION towpath.disk_full()"
    )
    try:
        here.follow("Postgres' disk is full")
    finally:
        here.sql_inside("DROP FUNCTION towpath.disk_full CASCADE")
    assert "lamp" in here.type("towpath result order/disk")


def test_runs_go_on_when_nats_is_back(here: Installation) -> None:
    here.start("o-7", "lamp", "--delay-ms 1500")
    here.end("nats")
    here.follow("NATS is away")


def test_runs_outlive_the_loss_of_jetstreams_data(here: Installation) -> None:
    here.end("worker")
    here.start("o-8", "lamp")
    here.kill("nats")
    here.begin("worker")
    here.follow("JetStream's data is lost, or an old copy was restored")


def test_another_engine_takes_over(here: Installation) -> None:
    os.kill(here.reader.terminal("engine-1").pid, signal.SIGKILL)
    here.follow("An engine died, or hangs")


def test_a_dead_letter_is_mended_and_replayed(here: Installation) -> None:
    here.publish("towpath.in.start.parcel.-.-", b"{}", {"Towpath-Sent-By": "shop"})
    here.follow("A message can't be decoded or applied")


def test_a_taken_key_can_be_had_by_replacing(here: Installation) -> None:
    here.end("worker")
    here.start("o-9", "lamp")
    here.follow("A key is taken")


def test_a_backup_is_restored_with_an_empty_nats(here: Installation) -> None:
    here.type("""towpath start order --key o-10 --input '{"sku": "lamp", "total": 5000}'""")
    blocks = here.section("Backup and restore")
    here.reader.follow(blocks[:1])
    here.type("towpath signal order/o-10 approved")
    assert "lamp" in here.type("towpath result order/o-10")

    here.reader.follow(blocks[1:])

    here.begin("engine-2")
    here.type("towpath signal order/o-10 approved")
    assert "lamp" in here.type("towpath result order/o-10")


def test_engines_are_upgraded_one_by_one(here: Installation) -> None:
    here.follow("Upgrades")
    here.ready("engine-2")
    here.start("upgraded", "lamp")
    assert "lamp" in here.type("towpath result order/upgraded")
