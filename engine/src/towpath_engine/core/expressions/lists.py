"""Functions on lists, sets and maps."""

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Final

from towpath_engine.core.expressions.operators import BINARY
from towpath_engine.core.expressions.overloads import Overloads
from towpath_engine.core.expressions.strings import reverse_string
from towpath_engine.core.expressions.values import (
    NONE,
    Duration,
    EvaluationError,
    Frame,
    Key,
    Optional,
    Timestamp,
    Uint,
    Value,
    compare,
    equal,
    no_overload,
)

RANGE_MAX: Final = 1_000
_SORTABLE: Final = (bool, int, Uint, float, str, bytes, Timestamp, Duration)


def _slice(frame: Frame, items: list[Value], start: int, end: int) -> list[Value]:
    if not 0 <= start <= end <= len(items):
        msg = f"slice({start}, {end}) of a list of {len(items)}"
        raise EvaluationError(msg)
    frame.charge_list(end - start)
    return items[start:end]


def _flatten(frame: Frame, items: list[Value], levels: int = 1) -> list[Value]:
    if levels < 0:
        msg = "flatten() of a negative depth"
        raise EvaluationError(msg)
    result: list[Value] = []
    _flatten_into(frame, result, (items, min(levels, 64)))
    frame.charge_list(len(result))
    return result


def _flatten_into(frame: Frame, result: list[Value], source: tuple[list[Value], int]) -> None:
    items, levels = source
    frame.charge(1 + (len(items) >> 1))
    for item in items:
        if levels > 0 and isinstance(item, list):
            _flatten_into(frame, result, (item, levels - 1))
        else:
            result.append(item)
    if len(result) > frame.limits.list_length_max:
        frame.charge_list(len(result))


def _order(frame: Frame, keys: Sequence[Value]) -> list[int]:
    """The indices of `keys` in ascending order, equal ones in their order. Raises
    EvaluationError unless all are of one type that has an order."""
    if any(type(k) is not type(keys[0]) or type(k) not in _SORTABLE for k in keys):
        msg = "sort() needs elements of one type that has an order"
        raise EvaluationError(msg)
    frame.charge_list(len(keys))

    def by_key(left: int, right: int) -> int:
        key = keys[left]
        frame.charge(1 + (len(key) >> 6 if isinstance(key, str | bytes) else 0))
        return compare("sort", key, keys[right])

    return sorted(range(len(keys)), key=cmp_to_key(by_key))


def _sort(frame: Frame, items: list[Value]) -> list[Value]:
    return [items[at] for at in _order(frame, items)]


def _sort_by(frame: Frame, items: list[Value], keys: list[Value]) -> list[Value]:
    return [items[at] for at in _order(frame, keys)]


def _distinct(frame: Frame, items: list[Value]) -> list[Value]:
    frame.charge_list(len(items))
    seen: set[tuple[type, Value]] = set()
    others: list[Value] = []
    result: list[Value] = []
    for item in items:
        if isinstance(item, str | bytes | int | float | bool | None):
            # Numbers are equal across types; a bool is equal to bools alone.
            kind = bool if isinstance(item, bool) else float if _is_number(item) else type(item)
            # NaN differs from itself, but a set would find the same object again.
            if (kind, item) in seen and item == item:  # noqa: PLR0124 - that is the test for NaN
                continue
            seen.add((kind, item))
        elif any(equal(frame, item, other) for other in others):
            continue
        else:
            others.append(item)
        result.append(item)
    return result


def _is_number(item: Value) -> bool:
    return isinstance(item, int | float)


def _range(frame: Frame, count: int) -> list[Value]:
    if not 0 <= count <= RANGE_MAX:
        msg = f"lists.range() is limited to 0 to {RANGE_MAX}"
        raise EvaluationError(msg)
    frame.charge_list(count)
    return list(range(count))


def _reverse(frame: Frame, items: list[Value]) -> list[Value]:
    frame.charge_list(len(items))
    return items[::-1]


def _first(_: Frame, items: list[Value]) -> Optional:
    return Optional(items[0]) if items else NONE


def _last(_: Frame, items: list[Value]) -> Optional:
    return Optional(items[-1]) if items else NONE


def _includes(frame: Frame, items: list[Value], wanted: Value) -> bool:
    return any(equal(frame, wanted, item) for item in items)


def _set_contains(frame: Frame, items: list[Value], wanted: list[Value]) -> bool:
    return all(_includes(frame, items, w) for w in wanted)


def _set_equivalent(frame: Frame, left: list[Value], right: list[Value]) -> bool:
    return _set_contains(frame, left, right) and _set_contains(frame, right, left)


def _set_intersects(frame: Frame, left: list[Value], right: list[Value]) -> bool:
    return any(_includes(frame, left, r) for r in right)


def _sum(frame: Frame, items: list[Value]) -> Value:
    """`list.sum()`: 0 of an empty list; ints stay ints, one double makes the sum a double."""
    frame.charge(1 + len(items))
    plus = BINARY["_+_"]
    total: Value = 0
    for at, item in enumerate(items):
        if type(item) not in (int, Uint, float, Duration):
            raise no_overload("sum", item)
        total = item if at == 0 else plus(frame, total, item)
    return total


def _merge(frame: Frame, left: dict[Key, Value], right: dict[Key, Value]) -> dict[Key, Value]:
    """`map.merge(map)`: the entries of both, those of the second where both have the key."""
    frame.charge_list(len(left) + len(right))
    return {**left, **right}


_Implementation = Callable[..., Value]
_REVERSES: Final[dict[int | tuple[type, ...], _Implementation]] = {
    (list,): _reverse,
    (str,): reverse_string,
}

LISTS: Final[Overloads] = {
    "slice": {(list, int, int): _slice},
    "flatten": {(list,): _flatten, (list, int): _flatten},
    "sort": {(list,): _sort},
    "@sortByAssociatedKeys": {(list, list): _sort_by},
    "distinct": {(list,): _distinct},
    "lists.range": {(int,): _range},
    "reverse": _REVERSES,
    "first": {(list,): _first},
    "last": {(list,): _last},
    "sets.contains": {(list, list): _set_contains},
    "sets.equivalent": {(list, list): _set_equivalent},
    "sets.intersects": {(list, list): _set_intersects},
    "sum": {(list,): _sum},
    "merge": {(dict, dict): _merge},
}
