"""How much work a pattern may be for the engine of regular expressions.

RE2 is linear in the text, but its slow way costs time for each state of the pattern as well, and
`((a|b){30}){30}` has thousands in a few characters. The estimate is what a match is charged with.
"""

import re
from typing import Final

STATES_MAX: Final = 1_000

_TOKEN: Final = re.compile(
    r"(?P<property>\\[pP](?:\{[^}]*\}|.))"
    r"|(?P<escape>\\.)"
    r"|(?P<set>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])"
    r"|(?P<count>\{(?P<low>\d{1,4})(?P<comma>,(?P<high>\d{0,4}))?\})"
    r"|(?P<open>\((?:\?P?<\w+>|\?[imsU-]*:?)?)"
    r"|(?P<close>\))"
    r"|(?P<repeat>[*+?])"
    r"|(?P<other>.)",
    re.DOTALL,
)
_SIZES: Final = {"property": 32, "escape": 4, "set": 8, "repeat": 1}


def pattern_states(pattern: str) -> int | None:
    """About how many states the pattern has; None when it quotes with `\\Q`: not judged."""
    if "\\Q" in pattern:
        return None
    # For each open group: the states so far, and those of its last part, which `{n}` multiplies.
    groups: list[list[int]] = [[0, 0]]
    for token in _TOKEN.finditer(pattern):
        group = groups[-1]
        match token.lastgroup:
            case "open":
                groups.append([0, 0])
            case "close" if len(groups) > 1:
                size = groups.pop()[0] + 1
                groups[-1] = [groups[-1][0] + size, size]
            case "count":
                times = int(token["high"] or 0) or int(token["low"]) + (token["comma"] is not None)
                group[0] += group[1] * max(times - 1, 0)
                group[1] *= max(times, 1)
            case "repeat":
                group[0] += 1
                group[1] += 1
            case kind:
                size = _SIZES.get(kind or "", len(token[0].encode("utf-8")))
                group[0] += size
                group[1] = size
    return sum(group[0] for group in groups)
