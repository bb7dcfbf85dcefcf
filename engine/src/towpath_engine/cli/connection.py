"""How API verbs reach an engine: the SDK's client with our settings, its errors in our words."""

import asyncio
import getpass
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.exits import EXIT_BY_STATUS, Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.secrets import mask_secrets
from towpath_engine.settings import Settings, load_settings
from towpath_protocol.errors import ProtocolError
from towpath_worker import (
    ApiError,
    Client,
    ConnectionOptions,
    ConnectionOptionsError,
    DefinitionRefusedError,
    InvalidValueError,
    RunFailed,
    TransportError,
)

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0


def ask(arguments: Arguments, question: Callable[[Client], Awaitable[T]]) -> T:
    """The answer to a question to the engine.

    Raises CommandError: UNREACHABLE, NOT_FOUND, REFUSED, RUN_FAILED, TIMED_OUT, or USAGE for a
    value that no engine would take.
    """
    settings = load_settings(os.environ, arguments.config).settings
    options = _options(arguments, settings)
    # What the SDK logs on the way, we say in our one sentence.
    logging.getLogger().addHandler(logging.NullHandler())

    async def connected() -> T:
        by = arguments.by or _user()
        async with Client(connection=options, timeout_seconds=TIMEOUT_SECONDS, by=by) as client:
            return await question(client)

    try:
        return asyncio.run(connected())
    except ApiError as error:
        raise refusal(error) from error
    except RunFailed as error:
        raise CommandError(Exit.RUN_FAILED, str(error)) from error
    except ConnectionError as error:
        raise CommandError(
            Exit.UNREACHABLE, f"{mask_secrets(str(error))}: is `towpath dev` running?"
        ) from error
    except TransportError as error:
        raise CommandError(Exit.UNREACHABLE, mask_secrets(str(error))) from error
    except TimeoutError as error:
        raise CommandError(Exit.TIMED_OUT, str(error)) from error
    except (InvalidValueError, ProtocolError, ConnectionOptionsError) as error:
        raise CommandError(Exit.USAGE, str(error)) from error


def refusal(error: ApiError) -> CommandError:
    """The engine's no, with every fault of a definition on a line of its own."""
    status = EXIT_BY_STATUS.get(error.status, Exit.REFUSED)
    faults = error.faults if isinstance(error, DefinitionRefusedError) else ()
    if faults:
        lines = [f"{fault.path or 'definition'}: {fault.message}" for fault in faults]
        return CommandError(status, f"the definition has {len(faults)} fault(s):", lines)
    return CommandError(status, str(error))


def _user() -> str:
    """Who works here, for the histories."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        # A container may have neither a name for its user nor a variable that says it.
        return "towpath-cli"


def _options(arguments: Arguments, settings: Settings) -> ConnectionOptions:
    try:
        return ConnectionOptions(
            nats_url=arguments.nats_url or settings.nats_url,
            prefix=arguments.prefix or settings.prefix,
            user=settings.nats_user or None,
            password=settings.nats_password or None,
            token=settings.nats_token or None,
            credentials_file=settings.nats_credentials_file or None,
            nkey_seed_file=settings.nats_nkey_seed_file or None,
            inbox_prefix=settings.nats_inbox_prefix,
            tls_ca_file=settings.nats_tls_ca_file or None,
            tls_cert_file=settings.nats_tls_cert_file or None,
            tls_key_file=settings.nats_tls_key_file or None,
            tls_hostname=settings.nats_tls_hostname or None,
            tls_handshake_first=settings.nats_tls_handshake_first,
        )
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from error
