"""Every limit of the wire with its documented default (PROTOCOL.md, "Limits")."""

from typing import Final

from msgspec import Struct

KIB: Final = 1024


class WireLimits(Struct, frozen=True, kw_only=True):
    """Sizes are bytes of JSON text, counts are plain numbers. Each one is a setting.

    Over a limit there is a clear error (`too_large`, with the field), nothing is published, and
    nothing is lost.
    """

    payload_bytes_max: int = 256 * KIB
    """Payload of a signal."""
    input_bytes_max: int = 256 * KIB
    """Input of a run or a step."""
    output_bytes_max: int = 256 * KIB
    """Output of a step or a run."""
    context_bytes_max: int = 8 * KIB
    metadata_bytes_max: int = 64 * KIB
    error_bytes_max: int = 16 * KIB
    progress_bytes_max: int = 16 * KIB
    logs_bytes_max: int = 64 * KIB
    """All log lines of one report."""
    headers_bytes_max: int = 16 * KIB
    """All headers of one message, names and separators included."""
    dispatch_bytes_max: int = 768 * KIB
    """Over it the step fails with `TooLarge`."""
    joined_output_bytes_max: int = 8 * KIB * KIB
    """Joined output of a map or parallel."""
    definition_bytes_max: int = KIB * KIB
    message_bytes_max: int = KIB * KIB
    """Body of any message: `max_msg_size` of the streams. The server's `max_payload` must not be
    smaller."""
    depth_max: int = 64
    """Nesting of any JSON value."""
    items_max: int = 10_000
    """Items of one run.start-many."""
