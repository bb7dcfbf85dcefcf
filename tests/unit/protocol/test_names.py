"""PROTOCOL.md §4, §5: names, subjects, streams, consumers, message ids."""

import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towpath_protocol import ids, subjects
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.failures import Failure
from towpath_protocol.priorities import LEVELS, PRIORITIES, Priority
from towpath_protocol.reports import REPORT_KINDS, StepCompleted, StepFailed, StepHeartbeat
from towpath_protocol.subjects import DispatchSubject, InKind, InSubject

RUN = "0199c82c-c000-7000-8203-040506070809"
OTHER = "0199c82c-c000-7000-8203-0405060708ff"
PAGE = (Path(__file__).parents[3] / "protocol/PROTOCOL.md").read_text()


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (ids.check_workflow, ["a", "A" + "9" * 63, "a_-b"], ["", "1a", "_a", "a.b", "a" * 65]),
        (ids.check_queue, ["default"], ["a b", "a*", "a>", "é", "a\n", "\na"]),
        (ids.check_signal, ["approved"], ["-a", "a/b", "a\x00"]),
        (ids.check_task, ["a.b-c_d", "a" * 128], ["", ".a", "a b", "a" * 129, "a\n"]),
        (ids.check_step, ["a", "a" + "_" * 62], ["A", "a-b", "1", "a" * 64, "a\n"]),
        (ids.check_token, ["-", "a" * 64, "A_-9"], ["", "a" * 65, "a.b", "a\n"]),
        (ids.check_prefix, ["towpath", "a-1", "a" * 32], ["A", "-a", "a_b", "a" * 33, "a\n"]),
        (ids.check_run_id, [RUN], [RUN.upper(), RUN[:-1], RUN.replace("-7", "-4", 1), RUN + "\n"]),
        (
            ids.check_key,
            ["a", " ".join("ab"), "é😀" * 128, "a" * 256, "50%"],
            [
                "", " a", "a ", "a\tb", "a\n", "a" * 257, "a\x00", "\ud800", "a\u2028b", "a\x85b",
                "\u3000a",
            ],
        ),
    ],
)  # fmt: skip
def test_a_name_is_taken_or_refused_with_its_field(
    check: Callable[[str, str], str], good: list[str], bad: list[str]
) -> None:
    for name in good:
        assert check(name, "here") == name
    for name in bad:
        with pytest.raises(ProtocolError) as refused:
            check(name, "here")
        assert (refused.value.code, refused.value.field) == (ErrorCode.INVALID_NAME, "here")
        assert str(refused.value).isascii()


@given(st.integers(min_value=0, max_value=(1 << 48) - 1), st.binary(min_size=10, max_size=10))
def test_a_new_run_id_is_a_uuid_of_version_7_that_sorts_by_time(at_ms: int, random: bytes) -> None:
    text = ids.new_uuid7(at_ms, random)
    parsed = uuid.UUID(text)
    assert ids.check_run_id(text) == str(parsed) == text
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == at_ms
    if at_ms:
        assert ids.new_uuid7(at_ms - 1, b"\xff" * 10) < text


def test_all_chance_given_is_used() -> None:
    made = {ids.new_uuid7(1, bytes([1 << bit if at == byte else 0 for at in range(10)]))
            for byte in range(10) for bit in range(8)}  # fmt: skip
    # 74 of the 80 bits fit a UUIDv7.
    assert len(made) >= 74


@pytest.mark.parametrize(("at_ms", "random"), [(-1, b"0" * 10), (1 << 48, b"0" * 10), (0, b"")])
def test_what_is_no_time_or_chance_is_refused(at_ms: int, random: bytes) -> None:
    with pytest.raises(ValueError, match=r"at_ms|random"):
        ids.new_uuid7(at_ms, random)


def test_streams_and_consumers_are_named_as_the_page_says() -> None:
    assert subjects.dispatch_stream("towpath") == "TOWPATH_DISPATCH"
    assert subjects.in_stream("my-shop") == "MY-SHOP_IN"
    assert subjects.event_stream("a") == "A_EVENTS"
    assert subjects.advisory_stream("a") == "A_ADV"
    assert subjects.queue_consumer("mail", 2) == "mail_p2"
    assert subjects.queue_consumer_filter("a", "mail", 2) == "a.dispatch.mail.2.*.*"
    assert subjects.dispatch_stream_subjects("a") == ("a.dispatch.*.*.*.*",)
    assert subjects.in_stream_subjects("a") == ("a.in.*.*.*.*",)
    assert subjects.event_stream_subjects("a") == ("a.events.*.*.*",)
    assert subjects.advisory_stream_subjects("a") == (
        "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.A_DISPATCH.*",
        "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.A_DISPATCH.*",
    )
    assert subjects.in_transform_destination("a") == (
        "a.inp.{{partition(16,3)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}.{{wildcard(4)}}"
    )
    assert subjects.partition_consumer_filter("a", 7) == "a.inp.7.>"


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (
            subjects.report_subject("a.in", "step-failed", "q", RUN, token="t"),
            InSubject(kind=InKind.STEP_FAILED, scope="q", run_id=RUN, name="t"),
        ),
        (
            subjects.signal_subject("a", RUN, "approved"),
            InSubject(kind=InKind.SIGNAL, scope="-", run_id=RUN, name="approved"),
        ),
        (
            subjects.signal_key_subject("a", "order", "o-1", "approved"),
            InSubject(
                kind=InKind.SIGNAL_KEY, scope="order", run_id=subjects.spread("o-1"),
                name="approved",
            ),
        ),
        (
            subjects.start_subject("a", "order", None),
            InSubject(kind=InKind.START, scope="order", run_id="-", name="-"),
        ),
        (
            subjects.child_start_subject("a", RUN, OTHER),
            InSubject(kind=InKind.CHILD_START, scope="-", run_id=OTHER, name=RUN),
        ),
        (
            subjects.child_cancel_subject("a", RUN, OTHER),
            InSubject(kind=InKind.CHILD_CANCEL, scope="-", run_id=OTHER, name=RUN),
        ),
        (
            subjects.child_settled_subject("a", RUN, OTHER),
            InSubject(kind=InKind.CHILD_SETTLED, scope="-", run_id=RUN, name=OTHER),
        ),
    ],
)  # fmt: skip
def test_what_is_built_can_be_parsed_transformed_or_not(subject: str, expected: InSubject) -> None:
    assert subjects.parse_in(subject, "a") == expected
    transformed = subject.replace("a.in.", "a.inp.12.", 1)
    assert subjects.parse_in(transformed, "a") == expected
    assert subjects.original_in(transformed, "a") == (subject, 12)


@pytest.mark.parametrize(
    "subject",
    [
        "", ".", "a", "a.in", "b.in.signal.-." + RUN + ".s", "a.in.signal.-." + RUN,
        f"a.in.signal.-.{RUN}.s.x", f"a.in.signal.x.{RUN}.s", "a.in.signal.-.nope.s",
        f"a.in.signal.-.{RUN}.s!", f"a.in.oops.-.{RUN}.s", f"a.in.step-failed.q.{RUN}.",
        f"a.in.step-failed.q!.{RUN}.t", f"a.in.step-failed.q.{RUN.upper()}.t",
        "a.in.start.order.-.x", "a.in.start.9.-.-", "a.in.start.order.é.-",
        "a.in.signal-key.order." + "x" * 65 + ".s", f"a.in.child-settled.-.{RUN}.x",
        f"a.in.step_failed.q.{RUN}.t", "a.inp.1.signal.-.s", "a.in.\x00.\x00.\x00.\x00",
    ],
)  # fmt: skip
def test_any_other_subject_is_a_bad_one(subject: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        subjects.parse_in(subject, "a")
    assert (refused.value.code, refused.value.field) == (ErrorCode.BAD_SUBJECT, "subject")


@given(st.text(max_size=80))
def test_no_text_as_subject_raises_anything_else(subject: str) -> None:
    for parse in (
        subjects.parse_in,
        subjects.parse_dispatch,
        subjects.parse_api,
        subjects.parse_heartbeat,
        subjects.original_in,
    ):
        for candidate in (subject, "a." + subject, "a.in." + subject, "a.dispatch." + subject):
            with pytest.raises(ProtocolError):
                parse(candidate + "..", "a")


def test_dispatch_api_and_heartbeat_subjects_can_be_parsed() -> None:
    place = DispatchSubject(queue="q", level=3, run_id=RUN, token="t")
    assert subjects.parse_dispatch(subjects.dispatch_subject("a", place), "a") == place
    assert subjects.parse_api(subjects.api_subject("a", "run.start-many"), "a") == "run.start-many"
    assert subjects.parse_api(subjects.api_subject("a", "dead-letter.list"), "a") == (
        "dead-letter.list"
    )
    assert subjects.parse_heartbeat(subjects.heartbeat_subject("a", "q"), "a") == "q"
    with pytest.raises(ProtocolError):
        subjects.parse_dispatch(f"a.dispatch.q.4.{RUN}.t", "a")


def test_engines_wake_the_owner_of_a_partition_or_all_of_them() -> None:
    assert subjects.wake_subject("a", 15) == "a.wake.15"
    assert subjects.wake_all_subject("a") == "a.wake.all"
    with pytest.raises(ProtocolError):
        subjects.wake_subject("a", -1)


@pytest.mark.parametrize("name", ["a.b", "a.>", "*", "", "a b"])
def test_no_name_adds_a_token_to_a_subject(name: str) -> None:
    builders: list[Callable[[], str]] = [
        lambda: subjects.report_subject("a.in", "step-failed", name, RUN, token="t"),
        lambda: subjects.report_subject("a.in", "step-failed", "q", name, token="t"),
        lambda: subjects.report_subject("a.in", "step-failed", "q", RUN, token=name),
        lambda: subjects.signal_subject("a", RUN, name),
        lambda: subjects.start_subject("a", name, None),
        lambda: subjects.event_subject("a", name, RUN, "custom"),
        lambda: subjects.control_subject("a", name),
        lambda: subjects.heartbeat_subject("a", name),
        lambda: subjects.queue_consumer(name, 0),
        lambda: subjects.dispatch_stream(name),
        lambda: subjects.api_subject("a", "run." + name),
    ]
    for build in builders:
        with pytest.raises(ProtocolError):
            build()


def test_message_ids_are_those_of_the_page() -> None:
    failed = StepFailed(error=Failure(type="A", message="b"), worker_id="w1")
    assert subjects.report_msg_id(failed, "tok") == "tok:step-failed:w1"
    assert subjects.report_msg_id(StepHeartbeat(n=7, worker_id="w1"), "tok") == (
        "tok:step-heartbeat:7"
    )
    assert subjects.report_msg_id(StepCompleted(), "tok") == "tok:step-completed:-"
    assert subjects.dispatch_msg_id("tok", 2) == "tok.2"


def test_kinds_levels_and_priorities_have_one_name_each() -> None:
    assert set(REPORT_KINDS.values()) == subjects.STEP_KINDS
    assert [LEVELS[priority] for priority in PRIORITIES] == [0, 1, 2, 3]
    assert Priority.NORMAL.level == 2


def _is_key(text: str) -> bool:
    try:
        ids.check_key(text)
    except ProtocolError:
        return False
    return True


@given(st.text(min_size=1, max_size=256).filter(_is_key))
def test_the_same_key_always_has_the_same_spreading_token(key: str) -> None:
    assert subjects.spread(key) == subjects.spread(key)
    assert ids.check_token(subjects.spread(key))


def test_keys_spread_over_all_partitions() -> None:
    tokens = [subjects.spread(f"o-{n}") for n in range(1_000)]
    assert {subjects.partition_of(token) for token in tokens} == set(range(16))


def test_the_page_lists_the_rights_that_a_pool_gets() -> None:
    rights = subjects.permissions("towpath", "mail")
    section = PAGE[PAGE.index("## 15. Security") : PAGE.index("## 16. Versions")]
    shown = set(re.findall(r"\S*(?:towpath\.|\$JS\.|_INBOX_)\S+", section.split("```")[1]))
    expanded = {right.replace("_pN", f"_p{level}") for right in shown for level in range(4)}
    assert expanded == {*rights.publish, *rights.subscribe}
    assert subjects.permissions("towpath", "mail", inbox="_INBOX_x").subscribe[-1] == "_INBOX_x.>"
