"""The demo on small files of orders: it must find what is wrong, not only print a table."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.expected import Expected, expected_outcomes, table
from deploy.demo.judge import (
    Change,
    Effect,
    Outcome,
    RunError,
    RunView,
    StepView,
    charge_differences,
    differences_of,
    runs_per_order,
    stock_differences,
    stock_seen,
    undone_in_reverse,
)
from deploy.demo.orders import OrdersError, distinct, read_orders
from tests.support.demo import ORDERS, ROOT, DemoProcess

HUGE = 10**30 + 7


def order(order_id: str, **changes: Any) -> dict[str, Any]:
    usual = {"order_id": order_id, "customer": "Zoë", "sku": "ROPE", "quantity": 1}
    return {**usual, "total": 10, "card": "4242424242424242", **changes}


def articles(*skus: str) -> list[dict[str, Any]]:
    return [{"sku": sku, "quantity": number} for number, sku in enumerate(skus, start=1)]


def without(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in names}


def several(order_id: str, *skus: str, **changes: Any) -> dict[str, Any]:
    """An order of several articles."""
    return without(order(order_id, articles=articles(*skus), **changes), "sku", "quantity")


def write(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "orders.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_the_shipped_orders_are_a_thousand_lines_of_every_kind() -> None:
    orders = read_orders(ORDERS)
    assert len(orders) == 1_000
    assert len(distinct(orders)) < 1_000
    assert {one.total == 0 for one in orders} == {True, False}
    assert max(one.total for one in orders) > 2**64
    assert any(not one.order_id.isascii() for one in orders)
    assert {len(one.articles) for one in orders} == {1, 2, 3, 4}
    assert len(table(expected_outcomes(ORDERS))) == 5


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        ({"order_id": "b"}, ":2: Object missing required field `customer`"),
        (order("b", total=-1), ":2: total is negative"),
        (order("b", total=1.5), ":2: Expected `int`, got `float`"),
        (order("b", colour="red"), ":2: Object contains unknown field `colour`"),
        (order("b", card="none"), ":2: Expected `str` matching regex"),
        (order(" b"), ":2: order_id has outer blanks"),
        (
            {**order("b"), "articles": articles("ROPE")},
            ":2: sku and quantity stand beside articles",
        ),
        (several("b"), ":2: Expected `array` of length >= 1 - at `$.articles`"),
        (several("b", "ROPE", " LOCK"), ":2: sku has outer blanks"),
        (without(order("b"), "quantity"), ":2: Object missing required field `quantity`"),
        (order("a", total=11), ":2: order 'a' differs from line 1"),
    ],
)
def test_a_bad_line_is_named_with_its_fault(
    tmp_path: Path, second: dict[str, Any], fault: str
) -> None:
    path = write(tmp_path, order("a"), second)
    with pytest.raises(OrdersError) as caught:
        read_orders(path)
    assert fault in str(caught.value)


def test_a_bad_file_ends_the_demo_with_status_2(tmp_path: Path) -> None:
    path = write(tmp_path, {"order_id": "a"})
    command = [sys.executable, str(ROOT / "deploy/demo/run.py"), "--orders", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"{path}:1:" in done.stderr


def shipped_run(**changes: Any) -> RunView:
    names = ("reserve[0]/shelf", "charge", "ship")
    steps = [StepView(name, "task", "completed") for name in names]
    output = Outcome("shipped", "a", 10, tracking="T", message="M")
    usual: dict[str, Any] = {
        "run_id": "r",
        "key": "a",
        "status": "completed",
        "steps": steps,
        "output": output,
    }
    return RunView(**{**usual, **changes})


SHIPPED = Expected(
    "completed",
    "shipped",
    10,
    ("reserve[0]/shelf", "charge", "ship"),
    reserved=("R-a-0",),
    shipped=True,
    tracking="T",
    message="M",
)
REFUSED = Expected(
    "compensated",
    "CardRefused",
    0,
    (),
    undone=("reserve[0]/shelf",),
    failed=("charge",),
    reserved=("R-b-0", "R-b-1"),
)


def test_the_judge_accepts_what_is_right_and_names_each_difference() -> None:
    assert differences_of("a", shipped_run(), SHIPPED) == []

    failed = shipped_run(status="failed", output=None, error=RunError("Timeout"))
    wrong_amount = shipped_run(output=Outcome("shipped", "a", 11, tracking="T", message="M"))
    no_charge = shipped_run(steps=shipped_run().steps[:1])

    assert any("status is 'failed'" in one for one in differences_of("a", failed, SHIPPED))
    assert differences_of("a", wrong_amount, SHIPPED) == ["charged is 11, not 10"]
    assert differences_of("a", no_charge, SHIPPED)[0].startswith("completed tasks")


def test_the_judge_sees_a_step_that_was_not_undone() -> None:
    steps = [
        StepView("reserve[0]/shelf", "task", "compensated"),
        StepView("reserve[0]", "item", "completed"),
        StepView("charge", "task", "failed"),
    ]
    error = RunError("CardRefused", "charge")
    undone = shipped_run(status="compensated", steps=steps, output=None, error=error)
    left = shipped_run(
        status="compensated",
        steps=[StepView("reserve[0]/shelf", "task", "completed"), *steps[1:]],
        output=None,
        error=error,
    )

    assert differences_of("b", undone, REFUSED) == []
    assert [one.split(" is ")[0] for one in differences_of("b", left, REFUSED)] == [
        "completed tasks",
        "undone tasks",
    ]


def test_the_judge_sees_missing_extra_and_double_runs() -> None:
    runs = [shipped_run(), shipped_run(), shipped_run(key="c")]
    found = runs_per_order(runs, {"a": SHIPPED, "b": SHIPPED})
    assert found == ["b: no run", "a: 2 runs", "c: a run that no order asked for"]


def test_the_judge_accepts_a_repeated_charge_only_under_the_same_idempotency_key() -> None:
    def charged(key: str, amount: int) -> Effect:
        return Effect("done", "payment.charge", 1, key, order_id="a", amount=amount)

    wanted = {"a": SHIPPED}
    assert charge_differences({"w": [charged("k", 10)], "x": [charged("k", 10)]}, wanted) == []
    assert charge_differences({"w": [charged("k", 10), charged("l", 10)]}, wanted) != []
    assert charge_differences({"w": [charged("k", 11)]}, wanted) != []
    assert charge_differences({"w": []}, wanted) != []


def stock(task: str, key: str, *reservations: str) -> Effect:
    return Effect("done", f"inventory.{task}", 1, key, reservations=list(reservations))


def test_the_judge_counts_every_reservation_its_parcel_and_its_release() -> None:
    wanted = {"a": SHIPPED, "b": REFUSED}
    right = [
        stock("reserve", "1", "R-a-0"),
        stock("reserve", "2", "R-b-0"),
        stock("reserve", "3", "R-b-1"),
        stock("ship", "4", "R-a-0"),
        stock("release", "5", "R-b-0"),
        stock("release", "6", "R-b-1"),
    ]

    def judged(*lines: Effect) -> list[str]:
        return stock_differences(stock_seen({"w": list(lines[:3]), "x": list(lines[3:])}), wanted)

    repeated = (*right, right[5])
    twice = (*right, stock("release", "7", "R-b-1"))
    of_a_parcel = (*right, stock("release", "7", "R-a-0"))

    assert judged(*right) == []
    assert judged(*repeated) == []
    assert judged(*twice) == ["R-b-1: release was done 2 times, not 1"]
    assert judged(*of_a_parcel) == ["R-a-0: release was done 1 times, not 0"]
    assert judged(*right[:-1]) == ["R-b-1: release was done 0 times, not 1"]


def test_the_judge_sees_an_undo_that_is_out_of_order_lost_or_done_again() -> None:
    completed = [Change("step-completed", "x"), Change("step-completed", "y")]
    x, y = (Change("step-compensated", name) for name in "xy")

    assert undone_in_reverse("a", [*completed, y, x]) is None
    assert undone_in_reverse("a", [*completed, x, y]) is not None
    assert undone_in_reverse("a", [*completed, y, x, x]) is not None


def replayed(demo: DemoProcess, key: str, folder: Path) -> str:
    """What `towpath replay` says of the exported history of the order's run."""
    where = ["--nats-url", demo.ready["nats_url"], "--prefix", demo.ready["prefix"]]
    file = str(folder / f"{key}.json")
    for command in (["history", f"order/{key}", "--export", file, *where], ["replay", file]):
        done = subprocess.run(
            [sys.executable, "-m", "towpath_engine", *command],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_takes_another_file_of_orders(tmp_path: Path) -> None:
    lines = [
        order("plain"),
        order("plain"),
        order("注文 1", total=0, customer="${ input.total }"),
        order("huge", total=HUGE),
        order("declined", total=5_000, decision="decline"),
        order("refused", card="4000000000000002"),
        order("gone", sku="SOLDOUT-ROPE"),
        several("many", "ROPE", "LOCK", "SOLDOUT-HOOK", "ROPE"),
        several("all gone", "SOLDOUT-ROPE", "SOLDOUT-LOCK"),
        several("many refused", "ROPE", "SOLDOUT-HOOK", "LOCK", card="4000000000000002"),
        several("many declined", "ROPE", "LOCK", total=5_000, decision="decline"),
        *(order(f"more-{number}", total=1_001) for number in range(12)),
    ]
    demo = DemoProcess(orders=write(tmp_path, *lines))
    try:
        result = demo.result()
        replays = [
            replayed(demo, key, tmp_path)
            for key in ("plain", "declined", "refused", "gone", "many", "many refused")
        ]
    finally:
        demo.close()

    assert result["differences"] == []
    assert all(text.endswith("transitions: the same\n") for text in replays), replays
    assert result["outcomes"] == {
        "compensated (CardRefused)": 2,
        "completed (declined)": 2,
        "completed (shipped in part)": 1,
        "completed (shipped)": 15,
        "failed (OutOfStock)": 2,
    }
    assert result["reservations"] == {"reserved": 24, "shipped": 18, "released": 6}
    assert (result["completed_by"].get("node", 0) > 0) == (shutil.which("node") is not None)
    assert demo.wait() == 0


def test_ctrl_c_stops_everything_in_the_middle() -> None:
    demo = DemoProcess()
    try:
        demo.wait_settled(1)
        demo.popen.send_signal(signal.SIGINT)
        assert demo.wait() == 3
    finally:
        demo.close()  # fails when a process is left


@pytest.mark.slow
def test_make_demo_ends_well_and_leaves_no_process() -> None:
    demo = DemoProcess()
    try:
        demo.wait_settled(1)
        assert demo.result()["ok"]
    finally:
        demo.close()  # fails when a process is left
    assert demo.wait() == 0
