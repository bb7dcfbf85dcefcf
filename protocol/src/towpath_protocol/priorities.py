"""The four priorities: their names in documents and messages, their levels in subjects."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Priority(StrEnum):
    """How urgent a run's dispatches are."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def level(self) -> int:
        """The level in the dispatch subject: 0 for critical to 3 for low."""
        return LEVELS[self]


LEVELS: Final[Mapping[Priority, int]] = {
    Priority.CRITICAL: 0,
    Priority.HIGH: 1,
    Priority.NORMAL: 2,
    Priority.LOW: 3,
}
"""Priority → level of the dispatch subject."""

PRIORITIES: Final[tuple[Priority, ...]] = tuple(LEVELS)
"""Level → priority: `PRIORITIES[2]` is `normal`."""
