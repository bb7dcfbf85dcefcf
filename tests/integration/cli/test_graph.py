"""`towpath graph`: of a file without a server, of a deployed workflow, of a run."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.command_line import fail, succeed
from tests.support.pictures import ORDER, overlaps, taken, ways

Environment = dict[str, str]

NOWHERE = {"TOWPATH_NATS_URL": "nats://127.0.0.1:9"}
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"
PATIENT = """
workflow: patient
steps:
  - {name: ask, wait: {signal: answer, timeout: 1h, on_timeout: {next: give_up}}}
  - {name: route, choice: [{when: "prev.payload == 'again'", next: ask}], default: thank}
  - {name: thank, pass: "thanks", end: true}
  - {name: give_up, pass: "too late"}
"""
FANNED = """
workflow: fanned
steps:
  - name: each
    map:
      items: "${ input }"
      tolerate: {count: 1}
      steps:
        - {name: double, pass: "${ 300 / (item - 7) }"}
        - {name: check, pass: "${ prev }"}
  - name: both
    parallel:
      branches:
        one: [{name: left, pass: 1}, {name: right, pass: 2}]
        two: [{name: alone, pass: 3}]
"""


def test_a_file_is_drawn_without_a_server(tmp_path: Path) -> None:
    file = tmp_path / "order.yaml"
    file.write_bytes(ORDER)
    drawn = succeed(NOWHERE, ["graph", str(file)])
    assert drawn.startswith("flowchart TB\n")
    assert ways(drawn)["reserve > apologise"] == "-.-> OutOfStock"
    assert succeed(NOWHERE, ["graph", "-"], stdin=ORDER.decode()) == drawn
    told = succeed(NOWHERE, ["graph", str(file), "--json"]).json()
    assert told == {
        "workflow": "order",
        "version": None,
        "run_id": None,
        "format": "mermaid",
        "text": drawn,
    }


def test_the_name_of_the_output_says_its_format(tmp_path: Path) -> None:
    file = tmp_path / "order.yaml"
    file.write_bytes(ORDER)
    picture = tmp_path / "order.SVG"
    said = succeed(NOWHERE, ["graph", str(file), "--output", str(picture)])
    assert said == f"{picture}: order is drawn.\n"
    text = picture.read_text()
    assert ET.fromstring(text).get("role") == "img"
    assert overlaps(text) == []
    assert succeed(NOWHERE, ["graph", str(file), "--format", "svg"]) == text
    other = tmp_path / "order.mmd"
    told = succeed(NOWHERE, ["graph", str(file), "--output", str(other), "--json"]).json()
    assert (told["format"], told["output"]) == ("mermaid", str(other))
    assert other.read_text() == succeed(NOWHERE, ["graph", str(file)])
    status, said = fail(NOWHERE, ["graph", str(file), "--output", str(tmp_path / "order.png")])
    assert (status, "name it .svg or .mmd" in said) == (2, True)
    status, said = fail(NOWHERE, ["graph", str(file), "--output", str(tmp_path / "no" / "o.svg")])
    assert (status, "No such file" in said) == (2, True)


def test_what_can_not_be_drawn_is_told_as_other_verbs_do(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("workflow: bad\nsteps: [{name: a, pass: 1, next: b}, {name: c, pass: 2}]")
    status, said = fail(NOWHERE, ["graph", str(file)])
    assert status == 5
    assert "fault(s):\n" in said
    assert fail(NOWHERE, ["graph", str(tmp_path / "none.yaml")])[0] == 2
    assert fail(NOWHERE, ["graph", str(file), "--version", "1"])[0] == 2
    assert fail(NOWHERE, ["graph", "not a name"])[0] == 2
    assert fail(NOWHERE, ["graph", "order"])[0] == 3


@pytest.fixture(scope="module")
def deployed(environment: Environment) -> Environment:
    succeed(environment, ["deploy", "-"], stdin=PATIENT)
    return environment


def test_a_deployed_workflow_is_drawn_in_any_version(deployed: Environment) -> None:
    told = succeed(deployed, ["graph", "patient", "--json"]).json()
    assert (told["workflow"], told["version"]) == ("patient", 1)
    assert ways(told["text"])["ask > give_up"] == "-.-> timeout 1h"
    assert "patient version 1 > ask" in ways(succeed(deployed, ["graph", "patient"]))
    assert succeed(deployed, ["graph", "patient", "--version", "1"]) == told["text"]
    assert fail(deployed, ["graph", "patient", "--version", "9"])[0] == 4
    assert fail(deployed, ["graph", "nothing"])[0] == 4


def test_a_run_is_drawn_with_its_states_and_the_way_it_took(deployed: Environment) -> None:
    run_id = succeed(deployed, ["start", "patient", "--key", "p/1"]).strip()
    begin = f"run {run_id} of patient version 1"
    drawn = succeed(deployed, ["graph", "patient/p/1"])
    assert taken(drawn) == {f"{begin} > ask"}
    assert "waiting for signal" in drawn
    succeed(deployed, ["signal", run_id, "answer", "--payload", '"again"'])
    succeed(deployed, ["signal", run_id, "answer", "--payload", '"yes"'])
    succeed(deployed, ["result", run_id])
    drawn = succeed(deployed, ["graph", run_id])
    way = {"ask > route", "route > ask", "route > thank", "thank > end"}
    assert taken(drawn) == {f"{begin} > ask", *way}
    assert "class s4 skipped" in drawn
    told = succeed(deployed, ["graph", run_id, "--format", "svg", "--json"]).json()
    assert (told["run_id"], told["workflow"], told["version"]) == (run_id, "patient", 1)
    assert overlaps(told["text"]) == []
    assert fail(deployed, ["graph", run_id, "--version", "1"])[0] == 2


def test_a_run_that_is_not_there_is_not_found(deployed: Environment) -> None:
    assert fail(deployed, ["graph", UNKNOWN])[0] == 4
    assert fail(deployed, ["graph", "patient/nobody"])[0] == 4


def test_a_run_of_branches_and_items_counts_them(environment: Environment) -> None:
    succeed(environment, ["deploy", "-"], stdin=FANNED)
    given = json.dumps(list(range(300)))
    run_id = succeed(environment, ["start", "fanned", "--input", given, "--wait", "--json"]).json()
    drawn = succeed(environment, ["graph", run_id["run_id"]])
    assert "300 items<br/>299 done, 1 failed<br/>completed" in drawn
    assert "double<br/>pass<br/>299 completed, 1 failed" in drawn
    found = taken(drawn)
    assert {"left > right", "each > both", "both > end", "double > check"} <= found
