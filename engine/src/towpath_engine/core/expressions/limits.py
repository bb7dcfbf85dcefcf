"""What an expression may cost. Static limits are checked at deploy, run-time limits while it runs.

The size of all expressions of a definition together is limited where definitions are parsed.

Fuel, not time, decides: the same expression over the same values always ends the same way,
however busy the machine is. One unit is about a microsecond.
"""

from msgspec import Struct


class StaticLimits(Struct, frozen=True, kw_only=True):
    """Checked when a definition is deployed; each is a setting of the same name."""

    source_length_max: int = 4_096
    """Code points of one expression."""
    nodes_max: int = 500
    """Nodes of the checked tree, macros expanded."""
    depth_max: int = 32
    """Levels of the checked tree; what a macro expands to counts as one. The checker itself
    refuses sources nested deeper than 32, whatever this is set to."""
    fold_depth_max: int = 2
    """How deep macros that loop (`map`, `filter`, `all`, ...) may be nested."""
    fold_count_max: int = 8
    """How many of them one expression may have."""
    literal_entries_max: int = 256
    """Elements of one list or map literal."""
    pattern_length_max: int = 256
    """Code points of a pattern of `matches`."""
    leaves_max: int = 1_000
    """Expressions in one template."""


class RuntimeLimits(Struct, frozen=True, kw_only=True):
    """Enforced during evaluation; each is a setting of the same name."""

    condition_fuel: int = 20_000
    """Units for one condition."""
    template_fuel: int = 100_000
    """Units for one template, all its expressions together."""
    string_length_max: int = 262_144
    """Code points (or bytes) of any string built."""
    list_length_max: int = 10_000
    """Elements of any list (entries of any map) built."""
    result_nodes_max: int = 20_000
    """Values in a computed result, counted as a tree. A variable passed through unchanged, or a
    part of one, is not counted: it was within the limits when it came in."""
    result_bytes_max: int = 262_144
    """Bytes of a computed result, nearly: characters of strings, and the punctuation."""
    template_bytes_max: int = 524_288
    """Bytes of JSON text of a rendered template. The limit on payloads is the core's own."""
    result_depth_max: int = 64
    """Nesting of a rendered template."""


class ExpressionLimits(Struct, frozen=True, kw_only=True):
    """All of them for one definition."""

    static: StaticLimits = StaticLimits()
    runtime: RuntimeLimits = RuntimeLimits()
    sources_bytes_max: int = 64 * 1024
    """All expressions of one definition together."""

    def for_stored(self) -> "ExpressionLimits":
        """What holds for a version that was deployed before: it stays legal when an operator
        lowers a limit of deploying; what its evaluation may cost is today's business."""
        boundless = StaticLimits(
            source_length_max=_BOUNDLESS,
            nodes_max=_BOUNDLESS,
            fold_depth_max=_BOUNDLESS,
            fold_count_max=_BOUNDLESS,
            literal_entries_max=_BOUNDLESS,
            pattern_length_max=_BOUNDLESS,
            leaves_max=_BOUNDLESS,
        )
        return ExpressionLimits(
            static=boundless, runtime=self.runtime, sources_bytes_max=_BOUNDLESS
        )


_BOUNDLESS = 1 << 62

DEFAULT_STATIC_LIMITS = StaticLimits()
DEFAULT_RUNTIME_LIMITS = RuntimeLimits()
DEFAULT_EXPRESSION_LIMITS = ExpressionLimits()
