"""PROTOCOL.md says what the code does: verbs, codes, limits, versions."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

import towpath_protocol
from towpath_protocol.errors import ERRORS, ErrorCode, ProtocolError, join_path
from towpath_protocol.events import EventName
from towpath_protocol.limits import KIB, WireLimits
from towpath_protocol.replies import RunView, StepView
from towpath_protocol.shapes import WAIT_MS_MAX
from towpath_protocol.subjects import InKind
from towpath_protocol.verbs import VERBS

PAGE = (Path(__file__).parents[3] / "protocol/PROTOCOL.md").read_text()


def section(number: int) -> str:
    start = PAGE.index(f"\n## {number}. ")
    end = PAGE.find(f"\n## {number + 1}. ")
    return PAGE[start : end if end > 0 else None]


def test_every_verb_is_on_the_page_as_built_or_as_not_yet() -> None:
    api = section(10)
    built = set(re.findall(r"^\| `([a-z.-]+)` \|", api, re.MULTILINE))
    assert built == {name for name, verb in VERBS.items() if verb.built}
    listed = api[api.index("answered 422") : api.index("* **`on_conflict`**")]
    group, missing = "", set[str]()
    for word in re.findall(r"`([a-z.-]+)`", listed.replace("`not_yet`", "")):
        group = word.partition(".")[0] or group
        missing.add(f"{group}.{word.partition('.')[2]}")
    assert missing == {name for name, verb in VERBS.items() if not verb.built}


def test_every_field_of_a_built_request_and_reply_is_on_the_page() -> None:
    api = section(10)
    for name, verb in VERBS.items():
        if verb.request is None or verb.reply is None or name == "run.start-many":
            continue
        (row,) = [line for line in api.splitlines() if line.startswith(f"| `{name}` |")]
        if name in {"run.get", "workflow.get"} or "as `run.start`" in row:
            continue
        for field in (*verb.request.__struct_encode_fields__, *verb.reply.__struct_encode_fields__):
            assert f"`{field}`" in row or field == "output_omitted", (name, field)


def test_the_run_and_its_steps_have_the_fields_of_the_page() -> None:
    text = section(10)
    for shape in (RunView, StepView):
        for field in shape.__struct_encode_fields__:
            assert re.search(rf"\b{field}\b", text), field


def test_every_kind_event_and_code_is_on_the_page() -> None:
    for kind in InKind:
        assert f"`{kind}`" in section(5)
    for event in EventName:
        assert f"`{event}`" in section(11)
    for code in ErrorCode:
        assert f"| `{code}` |" in section(13)


def test_the_limits_of_the_page_are_the_defaults() -> None:
    limits = WireLimits()
    shown = section(14)
    rows = {
        "payload, input, output | 256 KiB": limits.payload_bytes_max,
        "context | 8 KiB": limits.context_bytes_max,
        "metadata | 64 KiB": limits.metadata_bytes_max,
        "progress | 16 KiB": limits.progress_bytes_max,
        "logs of a report | 64 KiB": limits.logs_bytes_max,
        "dispatch | 768 KiB": limits.dispatch_bytes_max,
        "| 8 MiB": limits.joined_output_bytes_max,
        "definition | 1 MiB": limits.definition_bytes_max,
        "message | 1 MiB": limits.message_bytes_max,
    }
    units = {"KiB": KIB, "MiB": KIB * KIB}
    for row, value in rows.items():
        assert row in shown
        number, unit = row.rsplit(" ", 2)[1:]
        assert int(number) * units[unit] == value
    assert limits.input_bytes_max == limits.output_bytes_max == limits.payload_bytes_max
    assert limits.error_bytes_max == limits.headers_bytes_max == 16 * KIB
    assert "nesting of a value | 64" in shown
    assert limits.depth_max == 64
    assert "`run.start-many` | 10,000" in shown
    assert limits.items_max == 10_000
    assert f"at most {WAIT_MS_MAX:,}" in section(10)


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_status_that_the_page_knows(code: ErrorCode) -> None:
    facts = ERRORS[code]
    assert facts.status in {400, 404, 409, 413, 422, 429, 500}
    assert facts.meaning.endswith(".")
    assert ProtocolError(code, "x").status == facts.status


def test_an_error_reads_as_place_fault_and_fix() -> None:
    error = ProtocolError(ErrorCode.MALFORMED, "is wrong", field="details", fix="mend it")
    assert str(error) == "details: is wrong; mend it"
    assert str(error.within("error")) == "error.details: is wrong; mend it"
    assert str(ProtocolError(ErrorCode.MALFORMED, "is wrong")) == "is wrong"


@pytest.mark.parametrize(
    ("outer", "inner", "joined"),
    [("", "a", "a"), ("a", "", "a"), ("a", "b", "a.b"), ("a", "[0].b", "a[0].b"), ("", "", "")],
)
def test_paths_are_joined(outer: str, inner: str, joined: str) -> None:
    assert join_path(outer, inner) == joined


def test_the_package_says_its_version() -> None:
    assert towpath_protocol.__version__ == version("towpath-protocol")
    assert (towpath_protocol.OLDEST_SUPPORTED, towpath_protocol.CURRENT) == (1, 1)
    for name in towpath_protocol.__all__:
        assert hasattr(towpath_protocol, name)
