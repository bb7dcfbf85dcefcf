"""What tests of pictures share: every construct in one definition, and what a text says."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import msgspec

from towpath_engine.core.definition import Definition
from towpath_engine.core.parse import parse_definition
from towpath_engine.drawing.layout import CHARACTER, LINE
from towpath_engine.drawing.mermaid import mermaid
from towpath_engine.drawing.picture import picture_of
from towpath_engine.drawing.seen import RunSeen, StepRow
from towpath_engine.drawing.svg import svg
from towpath_engine.drawing.words import columns

SVG = "{http://www.w3.org/2000/svg}"
ORDER = b"""
workflow: order
input: {type: object}
steps:
  - name: reserve
    task: inventory.reserve
    queue: inventory
    retry: {max_attempts: 5}
    compensate: {task: inventory.release}
    catch: [{errors: [OutOfStock], next: apologise}]
  - name: approval
    when: input.total > 1000
    wait: {signal: approved, timeout: 24h, on_timeout: {next: apologise}}
  - name: notify
    parallel:
      on_error: wait_all
      branches:
        email:
          - {name: send, task: mail.send, catch: [{next: give_up}]}
          - {name: give_up, pass: null}
        invoice:
          - {name: draw, task: pdf.draw}
          - {name: print, task: pdf.print}
  - name: lines
    map:
      items: "${ input.lines }"
      as: line
      max_concurrency: 20
      tolerate: {count: 1}
      steps:
        - {name: pick, task: stock.pick}
        - name: check
          parallel:
            branches:
              weight: [{name: weigh, task: scale.weigh}]
              size:
                - {name: left, task: scale.left}
                - {name: right, task: scale.right}
                - {name: confirm, after: [left, right], wait: {all: [a, b]}}
                - {name: file, after: [left], task: disk.write}
  - {name: cool_off, sleep: 90m}
  - name: ready
    task: carrier.check
    limit: 7
    repeat: {delay: 10s, limit: 100, while: "output.ready == false"}
  - name: route
    choice:
      - {when: "input.country == 'FR'", next: ship_fr}
      - {when: "steps.ready.output.late", next: ready}
    default: ship
  - {name: ship_fr, task: carrier.ship_fr, next: totals}
  - {name: ship, task: carrier.ship}
  - {name: totals, pass: {gross: 1}}
  - {name: invoice, run: {workflow: invoice, version: 2}, end: true}
  - {name: apologise, task: mail.sorry, delay: 500ms}
"""


def parsed(document: bytes = ORDER) -> Definition:
    """The definition."""
    return parse_definition(document)


def as_mermaid(document: bytes = ORDER, seen: RunSeen | None = None) -> str:
    """Its picture in Mermaid."""
    return mermaid(picture_of(parsed(document), title="order", seen=seen))


def as_svg(document: bytes = ORDER, seen: RunSeen | None = None) -> str:
    """Its picture in SVG."""
    return svg(picture_of(parsed(document), title="order", seen=seen))


def seen_of(status: str, *rows: StepRow) -> RunSeen:
    """A run with these rows and no history."""
    seen = RunSeen(status=status)
    for row in rows:
        seen.add_row(row)
    return seen


def row(path: str, status: str, kind: str = "task", **fields: object) -> StepRow:
    """A row of a run."""
    return msgspec.convert({"path": path, "kind": kind, "status": status, **fields}, StepRow)


def ways(text: str) -> dict[str, str]:
    """`reserve > apologise` → how the arrow looks, of a Mermaid text; names are the steps'."""
    return dict(_ways(text))


def taken(text: str) -> set[str]:
    """The ways that a Mermaid text marks as taken."""
    marked = re.search(r"^  linkStyle ([0-9,]+) ", text, re.MULTILINE)
    found = _ways(text)
    return {found[int(number)][0] for number in marked[1].split(",")} if marked else set()


def _ways(text: str) -> list[tuple[str, str]]:
    nodes = r'^ *(?:subgraph )?(\w+)[\[\](){}/]+"([^"<]*)'
    names = dict(re.findall(nodes, text, re.MULTILINE))
    edges = r'^  (\w+) (-->|-\.->)(?:\|"(.*)"\|)? (\w+)$'
    return [
        (f"{names[source]} > {names[target]}", f"{arrow} {label}".strip())
        for source, arrow, label, target in re.findall(edges, text, re.MULTILINE)
    ]


def overlaps(text: str) -> list[tuple[str, str]]:
    """Pairs of texts of an SVG that lie over each other."""
    boxes: list[tuple[str, float, float, float]] = []
    for each in ET.fromstring(text).iter(f"{SVG}text"):
        said = each.text or ""
        x, y, width = float(each.get("x", "")), float(each.get("y", "")), columns(said) * CHARACTER
        x -= {"middle": width / 2, "end": width}.get(each.get("text-anchor", ""), 0)
        boxes.append((said, x, y, x + width))
    # A line of text is a little lower than the lines are apart.
    height = LINE - 5
    return [
        (one[0], other[0])
        for one, other in combinations(boxes, 2)
        if one[1] < other[3] and other[1] < one[3] and abs(one[2] - other[2]) < height
    ]


def boxes(text: str) -> dict[str, tuple[float, float, float, float]]:
    """The outlines of an SVG that are rectangles, by the title in them."""
    found: dict[str, tuple[float, float, float, float]] = {}
    outline = (0.0, 0.0, 0.0, 0.0)
    for each in ET.fromstring(text):
        if each.tag == f"{SVG}rect" and each.get("x") is not None:
            x, y = float(each.get("x", "")), float(each.get("y", ""))
            outline = (x, y, x + float(each.get("width", "")), y + float(each.get("height", "")))
        elif each.tag == f"{SVG}text" and each.get("font-weight") == "bold":
            found[each.text or ""] = outline
    return found
