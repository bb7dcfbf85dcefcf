"""Pictures of definitions: every construct is there, nothing overlaps, nothing escapes its text."""

import re
import xml.etree.ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pictures import SVG, as_mermaid, as_svg, boxes, overlaps, parsed, ways
from towpath_engine.core.definition import TaskSpec
from towpath_engine.drawing.mermaid import escaped, mermaid
from towpath_engine.drawing.picture import picture_of
from towpath_engine.drawing.svg import svg
from towpath_engine.drawing.words import cut, duration, span


def test_every_way_is_an_arrow_and_those_after_a_failure_are_dashed() -> None:
    assert ways(as_mermaid()) == {
        "order > reserve": "-->",
        "reserve > approval": "-->",
        "reserve > apologise": "-.-> OutOfStock",
        "approval > notify": "-->",
        "approval > apologise": "-.-> timeout 1d",
        "notify > lines": "-->",
        "lines > cool_off": "-->",
        "cool_off > ready": "-->",
        "ready > route": "-->",
        "route > ship_fr": "--> input.country #61;#61; 'FR'",
        "route > ready": "--> steps.ready.output.late",
        "route > ship": "--> default",
        "ship_fr > totals": "-->",
        "ship > totals": "-->",
        "totals > invoice": "-->",
        "invoice > end": "-->",
        "apologise > end": "-->",
        "send > give_up": "-.-> any error",
        "draw > print": "-->",
        "pick > check": "-->",
        "left > confirm": "-->",
        "left > file": "-->",
        "right > confirm": "-->",
    }


@pytest.mark.parametrize(
    "line",
    [
        "task inventory.reserve",
        "queue inventory",
        "up to 5 attempts",
        "↶ undo inventory.release",
        "when input.total > 1000",
        "wait for approved",
        "parallel, waits for all",
        "map line of ${ input.lines }",
        "20 at a time",
        "tolerates 1 failed",
        "wait for all of a, b",
        "sleep 1h30m",
        "at most 7 visits",
        "repeat while output.ready == false",
        "every 10s, at most 100 times",
        "pass",
        "run invoice version 2",
        "ends here",
        "delay 500ms",
    ],
)
def test_what_a_step_is_to_do_stands_in_it(line: str) -> None:
    assert f">{line.replace('>', '&gt;')}</text>" in as_svg()
    assert re.search(rf"<br/>{re.escape(escaped(line))}[<\"]", as_mermaid())


def test_branches_and_the_list_of_a_map_stand_within_their_step() -> None:
    text = as_mermaid()
    notify = text[text.index('["notify') : text.index('["lines')]
    assert re.findall(r'subgraph \w+\["(\w+)"\]', notify) == ["email", "invoice"]
    found = boxes(as_svg())

    def is_within(inner: str, outer: str) -> bool:
        one, other = found[inner], found[outer]
        return other[0] < one[0] and other[1] < one[1] and one[2] < other[2] and one[3] < other[3]

    assert is_within("email", "notify")
    assert is_within("give_up", "email")
    assert is_within("check", "lines")
    assert is_within("confirm", "size")
    assert not is_within("send", "invoice")


def test_no_label_lies_over_another() -> None:
    assert overlaps(as_svg()) == []


def test_a_step_that_leads_to_itself_can_be_drawn() -> None:
    document = b"""workflow: w
steps: [
      {name: wait, wait: {signal: go, timeout: 1h, on_timeout: {next: wait}}}]"""
    assert ways(as_mermaid(document))["wait > wait"] == "-.-> timeout 1h"
    assert overlaps(as_svg(document)) == []


def test_ways_of_one_kind_between_the_same_two_are_one_arrow() -> None:
    document = b"""workflow: w
steps: [
      {name: c, choice: [{when: "true", next: a}, {when: "false", next: a}], default: b},
      {name: a, pass: 1}, {name: b, pass: 2}]"""
    assert ways(as_mermaid(document))["c > a"] == "--> true or false"


def test_the_same_definition_gives_the_same_text() -> None:
    assert as_svg() == as_svg()
    assert as_mermaid() == as_mermaid()


HOSTILE = (
    '"]; click a "javascript:alert(1)"',
    "<script>alert(1)</script>",
    "%%{init: {}}%%",
    "a\nend\nb",
    "]]>&amp;",
    "`x` \\n #quot; $$x$$",
    "\x1b[31m\u202e\u0000\ud800",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_gets_out_of_its_label(text: str) -> None:
    assert_harmless(text)


@given(text=st.text(st.characters(codec=None, exclude_categories=()), max_size=60))
@settings(deadline=None, max_examples=60)
def test_no_drawn_text_gets_out_of_its_label(text: str) -> None:
    assert_harmless(text)


def assert_harmless(text: str) -> None:
    """Draw a task of this name, which no deploy would accept: a picture must not rely on that."""
    definition = parsed(b"workflow: w\nsteps: [{name: a, task: t}]")
    step = msgspec.structs.replace(definition.steps["a"], spec=TaskSpec(task=text))
    picture = picture_of(msgspec.structs.replace(definition, steps={"a": step}), title=text)
    drawn = mermaid(picture)
    lines = drawn.splitlines()
    assert len(lines) == 6
    assert all(line.count('"') in (0, 2) for line in lines)
    assert not re.search(r"[%`\\$<>{}]", re.sub(r"<br/>|-->|[{}]$", "", drawn))
    found = ET.fromstring(svg(picture))
    assert {each.tag.removeprefix(SVG) for each in found.iter()} <= {
        "svg", "title", "defs", "marker", "path", "rect", "text",
    }  # fmt: skip
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", svg(picture))


def test_a_long_text_is_cut_and_a_wide_one_has_room() -> None:
    assert cut("a" * 500) == "a" * 43 + "…"
    assert cut(" a \n\t b\x00 ") == "a b?"
    definition = parsed(b"workflow: w\nsteps: [{name: a, wait: {signal: s}}]")
    picture = picture_of(definition, title="\u6f22" * 40)
    left, _, right, _ = boxes(svg(picture))["\u6f22" * 40]
    assert right - left > 40 * 2 * 6


@pytest.mark.parametrize("shape", ["chain", "fan", "catches"])
def test_a_thousand_steps_can_be_drawn(shape: str) -> None:
    steps: list[object] = [{"name": f"s{number}", "task": "t"} for number in range(998)]
    if shape == "fan":
        rows = [{"when": "true", "next": f"s{number}"} for number in range(997)]
        steps = [{"name": f"s{number}", "task": "t", "end": True} for number in range(998)]
        steps.insert(0, {"name": "c", "choice": rows, "default": "s997"})
    elif shape == "catches":
        steps = [{**step, "catch": [{"next": "last"}]} for step in steps if isinstance(step, dict)]
        steps.append({"name": "last", "task": "t"})
    document = msgspec.json.encode({"workflow": "w", "steps": steps})
    found = ET.fromstring(as_svg(document))
    assert len(list(found.iter(f"{SVG}rect"))) >= 998
    assert as_mermaid(document).count("-->") >= 998


def test_times_are_told_in_the_units_of_definitions() -> None:
    assert [duration(ms) for ms in (0, 5, 1_500, 5_400_000)] == ["0ms", "5ms", "1s500ms", "1h30m"]
    begin = "2026-01-31T12:00:00.000000Z"
    assert span(begin, "2026-01-31T12:00:00.250000Z") == "250ms"
    assert span(begin, "2026-01-31T12:00:01.250000Z") == "1s250ms"
    assert span(begin, "2026-02-03T14:05:06.250000Z") == "3d2h"
    assert span(begin, None) is None
    assert span("yesterday", begin) is None
