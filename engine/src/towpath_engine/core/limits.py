"""The limits that the core enforces. The shell fills them from settings."""

from msgspec import Struct


class CoreLimits(Struct, frozen=True, kw_only=True):
    """Sizes in bytes of JSON text, counts per run. Every one is a setting of the same name."""

    payload_bytes_max: int = 256 * 1024
    joined_output_bytes_max: int = 8 * 1024 * 1024
    """Outputs and errors of the parts of a whole, together; also the items of a map."""
    metadata_bytes_max: int = 64 * 1024
    error_bytes_max: int = 16 * 1024
    progress_bytes_max: int = 16 * 1024
    dispatch_bytes_max: int = 768 * 1024
    transitions_per_decision_max: int = 1_000
    transitions_per_run_max: int = 1_000_000
    open_steps_per_run_max: int = 100_000
    signals_kept_max: int = 10_000
    signals_kept_bytes_max: int = 8 * 1024 * 1024
    """Payloads of the signals that a run keeps, together: they are in memory with the run."""
    releases_in_a_row_max: int = 100
    events_per_report_max: int = 100
    """Custom events of one report; with more the attempt fails."""
    reply: str = "towpath.in"
    """No limit, but the one other setting that `decide` needs: the `reply` of every dispatch,
    `<prefix>.in`."""
    ack_wait_ms: int = 30_000
    """Not a limit either: told to workers in every dispatch, so that they know how often to say
    that they are still at it."""
