"""Random definitions that a deploy accepts."""

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec import Struct

from tests.support.builders import Json

SIGNALS = ("go", "stop")
"""The signals that their waits wait for."""

_RETRIES: Sequence[Json] = (
    {},
    {"max_attempts": 3, "backoff": {"initial": "1s", "jitter": 0}},
    {"max_attempts": 2, "never": ["Never"]},
    {"max_attempts": 3, "when": "error.type != 'Boom' || error.attempt < 2"},
    {"max_attempts": 3, "when": "error.details.nothing == 1"},
)
_TIMEOUTS: Sequence[Json] = (
    {},
    {"attempt": "10s", "step": "40s"},
    {"attempt": "10s", "dispatch": "20s", "heartbeat": "5s"},
)
_CONDITIONS = (
    "true",
    "false",
    "input.n > 3",
    "has(metadata.n)",
    "prev == null",
    "input.nothing",
)


class _Shape(Struct, frozen=True):
    kind: str
    variant: int
    target: int
    when: int
    delay: bool


_SHAPES = st.builds(
    _Shape,
    kind=st.sampled_from(("task", "task", "task", "pass", "choice", "wait", "sleep")),
    variant=st.integers(0, 29),
    target=st.integers(0, 5),
    when=st.integers(0, 30),
    delay=st.integers(0, 5).map(lambda n: n == 0),
)


def _step(shape: _Shape, index: int, count: int) -> dict[str, object]:
    last = index == count - 1
    target = f"s{shape.target % count}"
    step: dict[str, object] = {"name": f"s{index}", "limit": 3}
    if shape.when < len(_CONDITIONS):
        step["when"] = _CONDITIONS[shape.when]
    if shape.delay:
        step["delay"] = "5s"
    match shape.kind:
        case "choice" if not last:
            condition = _CONDITIONS[shape.variant % len(_CONDITIONS)]
            step["choice"] = [{"when": condition, "next": target}]
            step["default"] = f"s{index + 1}"
        case "wait":
            wait: dict[str, object] = {"signal": SIGNALS[shape.variant % 2], "timeout": "30s"}
            if shape.variant % 3:
                wait["on_timeout"] = {"next": target}
            step["wait"] = wait
        case "sleep":
            step["sleep"] = "20s"
        case "pass":
            step["pass"] = {"p": "${ prev }", "m": "${ metadata }"}
        case _:
            step["task"] = "work"
            step["input"] = {"i": "${ iteration }", "last": "${ last }", "n": "${ input.n }"}
            step["retry"] = dict(_RETRIES[shape.variant % len(_RETRIES)])
            step["timeouts"] = dict(_TIMEOUTS[shape.variant % len(_TIMEOUTS)])
            step["repeat"] = {"limit": 2 + shape.variant % 2, "delay": "2s"}
    return step


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, object]:
    """A document that a deploy accepts: every step is reached by the order of the list, jumps go
    anywhere, and every step has a limit of visits."""
    shapes = draw(
        st.lists(_SHAPES, min_size=1, max_size=6) | st.lists(_SHAPES, min_size=4, max_size=6)
    )
    document: dict[str, object] = {
        "workflow": "random",
        "steps": [_step(shape, index, len(shapes)) for index, shape in enumerate(shapes)],
    }
    if draw(st.booleans()):
        document["timeout"] = "45s"
    return document
