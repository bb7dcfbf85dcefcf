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
    CredentialsRefusedError,
    DefinitionRefusedError,
    InvalidValueError,
    MissingRightError,
    NoAnswerError,
    NotConnectedError,
    OutcomeUnknownError,
    RunFailed,
    TransportError,
)
from towpath_worker.dev_server import running_dev_server, stopped_dev_server
from towpath_worker.options import FROM_ENVIRONMENT

T = TypeVar("T")

TIMEOUT_SECONDS = 10.0
CONNECT_SECONDS = 3.0
"""A server that takes nobody for so long is not there, or it is another one that was meant."""


def ask(arguments: Arguments, question: Callable[[Client], Awaitable[T]]) -> T:
    """The answer to a question to the engine.

    Raises CommandError: UNREACHABLE, DENIED, NOT_FOUND, REFUSED, RUN_FAILED, TIMED_OUT, or USAGE
    for a value that no engine would take.
    """
    options, told_by = _options(arguments, load_settings(os.environ, arguments.config))
    warn_of_a_stopped_server(arguments)
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
    except (
        ApiError,
        RunFailed,
        TransportError,
        TimeoutError,
        InvalidValueError,
        ProtocolError,
        ConnectionOptionsError,
    ) as error:
        raise _failure(error, options.address, told_by) from error


def _failure(error: Exception, address: str, told_by: str) -> CommandError:
    """What the SDK raised, in one sentence with its status. `TransportError` comes first: some are
    kinds of `TimeoutError`, too."""
    match error:
        case ApiError():
            return refusal(error)
        case RunFailed():
            return CommandError(Exit.RUN_FAILED, str(error))
        case TransportError():
            return _unanswered(error, address, told_by)
        case TimeoutError():
            return CommandError(Exit.TIMED_OUT, str(error))
        case _:
            return CommandError(Exit.USAGE, str(error))


def _unanswered(error: TransportError, address: str, told_by: str) -> CommandError:
    """From kinds to families, with what to do about it."""
    status, text = Exit.UNREACHABLE, mask_secrets(str(error))
    match error:
        case MissingRightError():
            status, text = Exit.DENIED, f"{text} (at {address})"
        case CredentialsRefusedError():
            who = (
                "TOWPATH_NATS_USER with TOWPATH_NATS_PASSWORD, or TOWPATH_NATS_TOKEN, "
                "_CREDENTIALS_FILE or _NKEY_SEED_FILE, say who we are"
            )
            status, text = Exit.DENIED, f"{text}, as {told_by} says: {who}"
        case NotConnectedError():
            advice = "is `towpath dev` running? TOWPATH_NATS_URL or --nats-url name another server"
            text = f"{text}, as {told_by} says: {advice}"
        case OutcomeUnknownError():
            # The name of a parameter there, of an option here.
            text = text.replace("with request_id=", "with --request-id ")
            text = text.replace("with message_id=", "with --message-id ")
        case NoAnswerError():
            text = f"{text} (as {told_by} says)"
        case _:
            pass
    return CommandError(status, text)


def warn_of_a_stopped_server(arguments: Arguments) -> None:
    """The default port may be another project's: who has run `towpath dev` here means that one."""
    loaded = load_settings(os.environ, arguments.config)
    folder = stopped_dev_server() if _told_by(arguments, loaded) is None else None
    if folder is not None:
        options, told_by = _options(arguments, loaded)
        print_notice(
            f"no `towpath dev` of {folder} runs now: going to {options.address}, {told_by}"
        )


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
