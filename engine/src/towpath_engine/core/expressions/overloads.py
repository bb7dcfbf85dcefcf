"""How implementations of functions are registered."""

from collections.abc import Callable, Mapping

from towpath_engine.core.expressions.values import Value

Implementation = Callable[..., Value]
"""Called with the frame and the arguments, the receiver first."""

Overloads = Mapping[str, Mapping[int | tuple[type, ...], Implementation]]
"""By name; then by the exact types of the arguments, or by their number when any types will do."""
