"""Random definitions of the whole language that a deploy accepts: small, but nested.

A definition is made from a number, not drawn by Hypothesis: a hundred thousand histories must be
made in minutes, and the same number gives the same definition everywhere.
"""

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from hypothesis import strategies as st

from tests.support.builders import Json
from towpath_engine.core.definition import Definition
from towpath_engine.core.faults import DefinitionRefused
from towpath_engine.core.parse import parse_definition

SIGNALS: Final = ("go", "stop")
"""The signals that waits wait for."""
DEPTH_MAX: Final = 3
STEPS_MAX: Final = 14

_RETRIES: Final[Sequence[Json]] = (
    {},
    {"max_attempts": 3, "backoff": {"initial": "1s", "jitter": 0}},
    {"max_attempts": 2, "never": ["Never"]},
    {"max_attempts": 3, "when": "error.type != 'Boom' || error.attempt < 2"},
    {"max_attempts": 3, "when": "error.details.nothing == 1"},
)
_TIMEOUTS: Final[Sequence[Json]] = (
    {},
    {"attempt": "10s", "step": "40s"},
    {"attempt": "10s", "dispatch": "20s", "heartbeat": "5s"},
)
_CONDITIONS: Final = (
    "true",
    "false",
    "input.n > 3",
    "has(metadata.n)",
    "prev == null",
    "input.nothing",
)
_ITEMS: Final = (
    "${ input.items }",
    "${ input.items }",
    "${ [1, 2, 3] }",
    "${ [1, 2, 3, 4] }",
    "${ [] }",
    "${ input.n }",
)
_UNDO_INPUTS: Final = (
    None,
    None,
    {"o": "${ output }", "e": "${ error.type }"},
    "${ input.n }",
)
_SCHEMAS: Final[Sequence[object]] = (True, {"type": ["integer", "string", "null"]}, {"minimum": 5})
_WHOLES: Final = ("parallel", "map", "map")
_LEAVES: Final = (
    "task", "task", "task", "task", "pass", "choice", "wait", "sleep", "run",
)  # fmt: skip
_PLAIN: Final[Mapping[str, Sequence[Json]]] = {
    "sleep": ({"sleep": "20s"}, {"sleep": "1s"}),
    "pass": ({"pass": {"p": "${ prev }", "m": "${ metadata }"}}, {"pass": None}),
}


class Drawing:
    """One definition in the making. `flat`: nothing runs beside anything else, so that the outcome
    does not depend on the order of messages."""

    def __init__(self, seed: int, *, flat: bool = False) -> None:
        self._dice = random.Random(seed)
        self._flat = flat
        self._made = 0

    def document(self) -> dict[str, object]:
        """The document."""
        dice = self._dice
        document: dict[str, object] = {"workflow": "random", "steps": self._list(0, ())}
        if not self._flat and self._chance(0.4):
            document["timeout"] = dice.choice(("8s", "20s", "45s", "90s"))
        if self._chance(0.25):
            document["on_failure"] = "fail"
        if self._chance(0.1):
            document["output"] = {"last": "${ prev }"}
        return document

    def _chance(self, share: float) -> bool:
        return self._dice.random() < share

    def _list(self, depth: int, items: tuple[str, ...]) -> list[dict[str, object]]:
        """A list of steps; `items` are the variables of the maps around it."""
        most = (6, 4, 3, 2)[depth]
        count = max(1, min(self._dice.randint(1 if depth else 2, most), STEPS_MAX - self._made))
        first = self._made
        self._made += count
        names = [f"s{first + index}" for index in range(count)]
        is_dag = not self._flat and count > 1 and self._chance(0.25)
        steps = [
            self._step(name, index, names, depth, items, is_dag=is_dag)
            for index, name in enumerate(names)
        ]
        if is_dag:
            self._order(steps, names)
        else:
            self._lead(steps, names)
        return steps

    # How a list goes on

    def _order(self, steps: list[dict[str, object]], names: list[str]) -> None:
        """A DAG: each step comes after some of those before it, whatever the order of the text."""
        for index, step in enumerate(steps):
            before = [name for name in names[:index] if self._chance(0.5)]
            if before or index == len(steps) - 1:
                step["after"] = before or [names[0]]
        self._dice.shuffle(steps)

    def _lead(self, steps: list[dict[str, object]], names: list[str]) -> None:
        """Jumps: each step stays within reach by the order of the list or by a choice before it."""
        for index, step in enumerate(steps):
            is_last = index == len(steps) - 1
            if "choice" in step and index + 2 < len(steps) and self._chance(0.6):
                # Two ways that meet again, or one of which ends.
                step["choice"] = [{"when": self._condition(()), "next": names[index + 2]}]
                step["default"] = names[index + 1]
                if "choice" not in steps[index + 1]:
                    if index + 3 < len(steps):
                        steps[index + 1]["next"] = names[index + 3]
                    else:
                        steps[index + 1]["end"] = True
            if self._chance(0.05 if is_last else 0.35):
                step["catch"] = [self._catch(index, names)]
            if is_last and "choice" not in step and "end" not in step and self._chance(0.1):
                step["end"] = True

    def _catch(self, index: int, names: list[str]) -> dict[str, object]:
        ahead = names[index + 1 :]
        back = not ahead or self._chance(0.1)
        row: dict[str, object] = {"next": self._dice.choice(names if back else ahead)}
        if self._chance(0.5):
            row["errors"] = self._dice.sample(
                ("Boom", "Never", "Timeout", "ChildFailed", "ExpressionError"), 2
            )
        if self._chance(0.2):
            row["when"] = "error.retryable"
        return row

    def _condition(self, items: tuple[str, ...]) -> str:
        choices = [*_CONDITIONS, *_CONDITIONS[:4]]
        if items:
            choices += [f"{items[-1]} != 2", "index == 0"] * 2
        return self._dice.choice(choices)

    # Steps

    def _step(
        self,
        name: str,
        index: int,
        names: list[str],
        depth: int,
        items: tuple[str, ...],
        *,
        is_dag: bool,
    ) -> dict[str, object]:
        dice = self._dice
        step: dict[str, object] = {"name": name, "limit": dice.choice((1, 2, 2, 3))}
        if self._chance(0.2):
            step["when"] = self._condition(items)
        if self._chance(0.12):
            step["delay"] = "5s"
        step |= self._kind(index, names, depth, items, is_dag=is_dag)
        undoable = "choice" not in step and step.get("when") != "false"
        if undoable and self._chance(0.6 if "task" in step else 0.4):
            step["compensate"] = self._compensation()
        return step

    def _kind(
        self, index: int, names: list[str], depth: int, items: tuple[str, ...], *, is_dag: bool
    ) -> dict[str, object]:
        dice = self._dice
        is_room = depth < DEPTH_MAX and self._made < STEPS_MAX and not self._flat
        if is_room and self._chance(0.45):
            whole = dice.choice(_WHOLES)
            make = self._map if whole == "map" else self._parallel
            return {whole: make(depth, items)}
        kind = dice.choice(_LEAVES)
        if kind == "choice" and not is_dag and index < len(names) - 1:
            return self._choice(index, names, items)
        if kind == "wait":
            return {"wait": self._wait(names, is_dag=is_dag)}
        if kind in _PLAIN:
            return dict(dice.choice(_PLAIN[kind]))
        if kind == "run":
            return {"run": self._run()}
        return self._task(items)

    def _choice(self, index: int, names: list[str], items: tuple[str, ...]) -> dict[str, object]:
        row = {"when": self._condition(items), "next": self._dice.choice(names)}
        if self._chance(0.1):
            # Now and then nothing holds, and there is no default.
            return {"choice": [row, {"when": "false", "next": names[index + 1]}]}
        return {"choice": [row], "default": names[index + 1]}

    def _task(self, items: tuple[str, ...]) -> dict[str, object]:
        dice = self._dice
        given = {"i": "${ iteration }", "last": "${ last }", "n": "${ input.n }"}
        if items:
            given["item"] = f"${{ {items[-1]} }}"
        task: dict[str, object] = {
            "task": "work",
            "queue": dice.choice(("default", "default", "other")),
            "input": given,
            "retry": dict(dice.choice(_RETRIES)),
            "timeouts": dict(dice.choice(_TIMEOUTS)),
        }
        if self._chance(0.5):
            repeat: dict[str, object] = {"limit": dice.choice((2, 3)), "delay": "2s"}
            if self._chance(0.4):
                repeat["while"] = dice.choice(
                    ("iteration < 1", "last == null", "false", "output.nothing == 1")
                )
            task["repeat"] = repeat
        return task

    def _compensation(self) -> dict[str, object]:
        dice = self._dice
        undo: dict[str, object] = {"task": "undo", "retry": dict(dice.choice(_RETRIES[:3]))}
        given = "${ output.nothing.at_all }" if self._chance(0.04) else dice.choice(_UNDO_INPUTS)
        if given is not None:
            undo["input"] = given
        if self._chance(0.3):
            undo["queue"] = "other"
        if self._chance(0.4):
            undo["timeouts"] = dict(dice.choice(_TIMEOUTS))
        return undo

    def _wait(self, names: list[str], *, is_dag: bool) -> dict[str, object]:
        dice = self._dice
        wait: dict[str, object] = {}
        match dice.choice(("any", "all", "count", "signal")):
            case "any" | "all" as mode:
                wait[mode] = list(SIGNALS)
            case "count":
                wait |= {"signal": dice.choice(SIGNALS), "count": 2}
            case _:
                wait["signal"] = dice.choice(SIGNALS)
        if self._chance(0.2):
            wait["schema"] = dice.choice(_SCHEMAS[:2] if self._flat else _SCHEMAS)
        if not self._flat or self._chance(0.5):
            wait["timeout"] = "30s"
            if not is_dag and self._chance(0.5):
                wait["on_timeout"] = {"next": dice.choice(names)}
        return wait

    def _run(self) -> dict[str, object]:
        run: dict[str, object] = {"workflow": "child"}
        # The output of a detached one is its id, which is another every time.
        if not self._flat and self._chance(0.3):
            run["detached"] = True
        if self._chance(0.5):
            run["input"] = {"n": "${ input.n }"}
        if self._chance(0.3):
            run["key"] = "${ run.id }"
        return run

    def _parallel(self, depth: int, items: tuple[str, ...]) -> dict[str, object]:
        count = self._dice.choice((1, 2, 2, 3))
        branches = {name: self._list(depth + 1, items) for name in "abc"[:count]}
        parallel: dict[str, object] = {"branches": branches}
        if self._chance(0.4):
            parallel["on_error"] = "wait_all"
        return parallel

    def _map(self, depth: int, items: tuple[str, ...]) -> dict[str, object]:
        dice = self._dice
        name = f"thing{depth}" if self._chance(0.5) else "item"
        if name in items:
            name = f"thing{depth}"
        one: dict[str, object] = {"items": dice.choice(_ITEMS)}
        if name != "item":
            one["as"] = name
        if self._chance(0.7):
            one["max_concurrency"] = dice.choice((1, 2, 3))
        if self._chance(0.5):
            one["tolerate"] = dice.choice(({"count": 1}, {"percent": 50}))
        one["steps"] = self._list(depth + 1, (*items, name))
        return one


def document_of(seed: int, *, flat: bool = False) -> dict[str, object]:
    """The document that this number gives: the first of a row of attempts that a deploy accepts."""
    return _accepted(seed, flat)[0]


def definition_of(seed: int, *, flat: bool = False) -> Definition:
    """The same, parsed."""
    return _accepted(seed, flat)[1]


@lru_cache(maxsize=512)
def _accepted(seed: int, flat: bool) -> tuple[dict[str, object], Definition]:
    for attempt in range(50):
        document = Drawing(seed * 64 + attempt, flat=flat).document()
        try:
            return document, parse_definition(document)
        except DefinitionRefused:
            continue  # a jump that makes a busy cycle, or leaves a step behind
    raise AssertionError(f"number {seed} gives no definition that a deploy accepts")


def definitions(*, flat: bool = False) -> st.SearchStrategy[dict[str, object]]:
    """The documents as a strategy."""
    return st.integers(0, 20_000).map(lambda seed: document_of(seed, flat=flat))
