"""How API verbs reach an engine: the SDK's client with our settings, its errors in our words."""

import asyncio
import getpass
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.exits import EXIT_BY_CODE, EXIT_BY_STATUS, Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_notice
from towpath_engine.cli.terminal import terminal
from towpath_engine.secrets import mask_secrets
from towpath_engine.settings import ENV_PREFIX, LoadedSettings, load_settings
from towpath_protocol.errors import ProtocolError
from towpath_worker import (
    ApiError,
    Client,
    ConnectionOptions,
    ConnectionOptionsError,
    DefinitionRefusedError,
    InvalidValueError,
    NoAnswerError,
    OutcomeUnknownError,
    RunFailed,
    TransportError,
)
from towpath_worker.dev_server import running_dev_server
from towpath_worker.options import FROM_ENVIRONMENT

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0
CONNECT_SECONDS = 3.0
"""A server that takes nobody for so long is not there, or it is another one that was meant."""


def ask(arguments: Arguments, question: Callable[[Client], Awaitable[T]]) -> T:
    """The answer to a question to the engine.

    Raises CommandError: UNREACHABLE, NOT_FOUND, REFUSED, RUN_FAILED, TIMED_OUT, or USAGE for a
    value that no engine would take.
    """
    options, told_by = _options(arguments, load_settings(os.environ, arguments.config))
    # What the SDK logs on the way, we say in our one sentence.
    logging.getLogger().addHandler(logging.NullHandler())

    async def connected() -> T:
        by = arguments.by or _user()
        client = Client(connection=options, timeout_seconds=TIMEOUT_SECONDS, by=by)
        try:
            await client.open(timeout_seconds=CONNECT_SECONDS)
            return await question(client)
        finally:
            await client.close()

    try:
        return asyncio.run(connected())
    except ApiError as error:
        raise refusal(error) from error
    except RunFailed as error:
        raise CommandError(Exit.RUN_FAILED, str(error)) from error
    except ConnectionError as error:
        raise CommandError(
            Exit.UNREACHABLE,
            f"{mask_secrets(str(error))}, as {told_by} says: is `towpath dev` running? "
            "TOWPATH_NATS_URL or --nats-url name another server",
        ) from error
    except NoAnswerError as error:
        where = "" if isinstance(error, OutcomeUnknownError) else f" (as {told_by} says)"
        raise CommandError(Exit.UNREACHABLE, mask_secrets(f"{error}{where}")) from error
    except TransportError as error:
        raise CommandError(Exit.UNREACHABLE, mask_secrets(str(error))) from error
    except TimeoutError as error:
        raise CommandError(Exit.TIMED_OUT, str(error)) from error
    except (InvalidValueError, ProtocolError, ConnectionOptionsError) as error:
        raise CommandError(Exit.USAGE, str(error)) from error


def name_server(arguments: Arguments) -> None:
    """Tell a person at a terminal where what they change is: more than one server may run."""
    if arguments.json or not terminal(sys.stderr).interactive:
        return
    options, told_by = _options(arguments, load_settings(os.environ, arguments.config))
    print_notice(f"at {options.address}, prefix {options.prefix} ({told_by})")


def refusal(error: ApiError) -> CommandError:
    """The engine's no, with every fault of a definition on a line of its own."""
    by_status = EXIT_BY_STATUS.get(error.status, Exit.REFUSED)
    status = EXIT_BY_CODE.get(error.code, by_status)
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


def _options(arguments: Arguments, loaded: LoadedSettings) -> tuple[ConnectionOptions, str]:
    """How to reach NATS, and who said where it is, in words."""
    settings = loaded.settings
    nats_url, prefix, told_by = settings.nats_url, settings.prefix, _told_by(arguments, loaded)
    if told_by is None:
        dev = running_dev_server()
        told_by = "the default" if dev is None else f"the `towpath dev` of {dev.folder}"
        if dev is not None:
            nats_url = dev.nats_url
            prefix = prefix if "prefix" in loaded.sources else dev.prefix
    try:
        options = ConnectionOptions(
            nats_url=arguments.nats_url or nats_url,
            prefix=arguments.prefix or prefix,
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
    return options, told_by


def _told_by(arguments: Arguments, loaded: LoadedSettings) -> str | None:
    """Who said where NATS is; None when nobody said anything about it."""
    if arguments.nats_url:
        return "--nats-url"
    source = loaded.sources.get("nats_url")
    if source is not None:
        return "TOWPATH_NATS_URL" if source == "environment" else "the settings file"
    told = {FROM_ENVIRONMENT[field] for field in FROM_ENVIRONMENT if field != "prefix"}
    return "the default" if told & {ENV_PREFIX + name.upper() for name in loaded.sources} else None
