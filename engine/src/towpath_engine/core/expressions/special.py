"""Functions that do not simply take the values of their arguments: they decide whether an argument
is evaluated at all, or need one to be a literal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from towpath_engine.core.expressions.ast import Call, Constant
from towpath_engine.core.expressions.folds import caught
from towpath_engine.core.expressions.operators import optional_select
from towpath_engine.core.expressions.patterns import STATES_MAX, pattern_states
from towpath_engine.core.expressions.times import GETTERS, parse_offset
from towpath_engine.core.expressions.values import (
    NONE,
    Duration,
    EvaluationError,
    Evaluator,
    Frame,
    Optional,
    Timestamp,
    Value,
    no_overload,
)

Matcher = Callable[[str], bool]
Special = Callable[[Call, Sequence[Evaluator], Callable[[str], Matcher]], Evaluator]


class UnsupportedError(Exception):
    """The checker accepts it, this engine does not: the definition is refused."""

    def __init__(self, reason: str, position: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def _logical(symbol: str, *, decisive: bool) -> Special:
    """`&&` (false decides) and `||` (true decides): a side that decides absorbs an error of the
    other one."""

    def special(_: Call, arguments: Sequence[Evaluator], __: object) -> Evaluator:
        left, right = arguments

        def evaluate(frame: Frame) -> Value:
            first = caught(frame, left)
            if first is decisive:
                return decisive
            second = right(frame) if first is not decisive and isinstance(first, bool) else None
            if isinstance(first, bool):
                if isinstance(second, bool):
                    return second
                raise no_overload(symbol, first, second)
            if caught(frame, right) is decisive:
                return decisive
            if isinstance(first, EvaluationError):
                raise first
            raise no_overload(symbol, first)

        return evaluate

    return special


def _conditional(_: Call, arguments: Sequence[Evaluator], __: object) -> Evaluator:
    test, yes, no = arguments

    def evaluate(frame: Frame) -> Value:
        holds = test(frame)
        if holds is True:
            return yes(frame)
        if holds is False:
            return no(frame)
        raise no_overload("?:", holds)

    return evaluate


def _not_strictly_false(_: Call, arguments: Sequence[Evaluator], __: object) -> Evaluator:
    value = arguments[0]
    return lambda frame: caught(frame, value) is not False


def _or_value(_: Call, arguments: Sequence[Evaluator], __: object) -> Evaluator:
    target, default = arguments

    def evaluate(frame: Frame) -> Value:
        optional = target(frame)
        if not isinstance(optional, Optional):
            raise no_overload("orValue", optional)
        return optional.value if optional.present else default(frame)

    return evaluate


def _or(_: Call, arguments: Sequence[Evaluator], __: object) -> Evaluator:
    target, other = arguments

    def evaluate(frame: Frame) -> Value:
        optional = target(frame)
        if not isinstance(optional, Optional):
            raise no_overload("or", optional)
        if optional.present:
            return optional
        alternative = other(frame)
        if not isinstance(alternative, Optional):
            raise no_overload("or", optional, alternative)
        return alternative

    return evaluate


def _or_default(_: Call, arguments: Sequence[Evaluator], __: object) -> Evaluator:
    """`x.orDefault(d)`: d where x is absent or null."""
    target, default = arguments

    def evaluate(frame: Frame) -> Value:
        value = target(frame)
        if isinstance(value, Optional):
            value = value.value if value.present else None
        return default(frame) if value is None else value

    return evaluate


def _optional_select(node: Call, arguments: Sequence[Evaluator], _: object) -> Evaluator:
    target, name = arguments[0], node.arguments[1]
    if not isinstance(name, Constant) or not isinstance(name.value, str):
        msg = "`.?` needs a literal name"
        raise UnsupportedError(msg, node.position)
    field = name.value
    return lambda frame: optional_select(target(frame), field)


def _matches(
    node: Call, arguments: Sequence[Evaluator], compile_pattern: Callable[[str], Matcher]
) -> Evaluator:
    target, pattern = arguments[0], node.arguments[1]
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        msg = "the pattern of `matches` must be a string literal"
        raise UnsupportedError(msg, node.position)
    states = pattern_states(pattern.value)
    if states is None or states > STATES_MAX:
        msg = "the pattern is too large: its counted repetitions multiply, or it quotes with \\Q"
        raise UnsupportedError(msg, node.position)
    matcher = compile_pattern(pattern.value)

    def evaluate(frame: Frame) -> Value:
        text = target(frame)
        if not isinstance(text, str):
            raise no_overload("matches", text)
        frame.charge(1 + (len(text) * states >> 5))
        return matcher(text)

    return evaluate


def _getter(node: Call, arguments: Sequence[Evaluator], _: object) -> Evaluator:
    """`t.getHours()`, `t.getHours("+02:00")`. Named time zones depend on the machine's tables, and
    the same state must give the same value everywhere."""
    target, zone = arguments[0], node.arguments[1:]
    offset = 0
    if zone:
        literal = zone[0]
        parsed = None
        if isinstance(literal, Constant) and isinstance(literal.value, str):
            parsed = parse_offset(literal.value)
        if parsed is None:
            msg = 'the time zone must be a literal "UTC" or an offset such as "+02:00"'
            raise UnsupportedError(msg, node.position)
        offset = parsed
    of_timestamp, of_duration = GETTERS[node.function]
    name, has_zone = node.function, bool(zone)

    def evaluate(frame: Frame) -> Value:
        value = target(frame)
        if isinstance(value, Timestamp):
            return of_timestamp(value.nanos + offset)
        if of_duration is None or has_zone or not isinstance(value, Duration):
            raise no_overload(name, value)
        return of_duration(value)

    return evaluate


def _none(*_: object) -> Evaluator:
    return lambda _frame: NONE


SPECIAL: Final[Mapping[str, Special]] = {
    "_&&_": _logical("&&", decisive=False),
    "_||_": _logical("||", decisive=True),
    "_?_:_": _conditional,
    "@not_strictly_false": _not_strictly_false,
    "_?._": _optional_select,
    "orValue": _or_value,
    "or": _or,
    "orDefault": _or_default,
    "optional.none": _none,
    "matches": _matches,
    **dict.fromkeys(GETTERS, _getter),
}
