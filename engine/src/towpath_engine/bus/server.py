"""Is this server fit for Towpath? Asked on every connection, answered in one sentence."""

from towpath_engine.bus.connection import Link, redacted
from towpath_engine.bus.errors import BusRefused, JetStreamError, NoResponderError
from towpath_engine.bus.jetstream import JetStreamApi
from towpath_engine.bus.settings import BusSettings

SERVER_VERSION_MIN = (2, 12, 3)
"""Older servers silently drop fields that we depend on."""
NOT_ENABLED = frozenset({10035, 10039, 10076})
"""JetStream's err_codes for: not for this account, not at all."""


async def check_server(link: Link, api: JetStreamApi, settings: BusSettings) -> None:
    """Raises BusRefused when the server is too old, has no JetStream or takes too small messages.

    Raises BusUnavailable when it does not answer.
    """
    where = f"The NATS server at {redacted(settings.urls)}"
    if link.server_version < SERVER_VERSION_MIN:
        raise BusRefused(
            f"{where} is version {_dotted(link.server_version)}, but Towpath needs at least "
            f"{_dotted(SERVER_VERSION_MIN)} (2.15 or newer is recommended)."
        )
    if link.max_payload < settings.payload_bytes_needed:
        raise BusRefused(
            f"{where} takes messages of at most {link.max_payload} bytes, but Towpath needs "
            f"{settings.payload_bytes_needed}: raise max_payload in its configuration."
        )
    without = f"{where} has no JetStream: enable it in its configuration, for this account, too."
    try:
        await api.call("INFO")
    except NoResponderError as error:
        raise BusRefused(without) from error
    except JetStreamError as error:
        if error.err_code in NOT_ENABLED:
            raise BusRefused(without) from error
        raise


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
