"""What the files of a connection hold: credentials, nkey seed, certificates.

Read here and checked before the NATS client gets to see them, because it does not forgive: a
`.creds` file without its marks would make it read for ever, a bad seed would end its
reconnecting. They are read for every new connection, so that a rotated file is taken up.
"""

import binascii
import importlib
import itertools
import ssl
from pathlib import Path

from towpath_worker.options import ConnectionOptions


class ConnectionOptionsError(ValueError):
    """A file that `ConnectionOptions` names cannot be used, or the extra `nkeys` is missing.

    The message names the option and the fix, and holds nothing that is secret.
    """


def read_credentials(options: ConnectionOptions) -> str | None:
    """The credentials file as text: JWT and seed between their marks; None when there is none.

    Raises ConnectionOptionsError when it cannot be read or is no credentials file.
    """
    if options.credentials_file is None:
        return None
    text = _read("credentials_file", options.credentials_file)
    jwt = _between(text, "BEGIN NATS USER JWT")
    seed = _between(text, "BEGIN USER NKEY SEED")
    if jwt is None or seed is None:
        raise ConnectionOptionsError(
            f"credentials_file {options.credentials_file} is no NATS credentials file: it lacks "
            f"its {'JWT' if jwt is None else 'seed'}"
        )
    _check_seed("credentials_file", seed)
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def read_nkey_seed(options: ConnectionOptions) -> str | None:
    """The seed of the nkey seed file; None when there is none.

    Raises ConnectionOptionsError when it cannot be read or holds no seed.
    """
    if options.nkey_seed_file is None:
        return None
    seed = _read("nkey_seed_file", options.nkey_seed_file).strip()
    _check_seed("nkey_seed_file", seed)
    return seed


def tls_context(options: ConnectionOptions) -> ssl.SSLContext | None:
    """What TLS is to trust and to show; None leaves a `tls://` URL to the system's authorities.

    Raises ConnectionOptionsError when a file cannot be used.
    """
    if not options.demands_tls:
        return None
    try:
        context = ssl.create_default_context(cafile=options.tls_ca_file)
        if options.tls_cert_file is not None:
            context.load_cert_chain(options.tls_cert_file, options.tls_key_file)
    except (OSError, ssl.SSLError) as error:
        files = (options.tls_ca_file, options.tls_cert_file, options.tls_key_file)
        named = ", ".join(file for file in files if file is not None)
        raise ConnectionOptionsError(f"the TLS files {named} can't be used: {error}") from error
    return context


def _read(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConnectionOptionsError(f"{option} {path} can't be read: {reason}") from error


def _between(text: str, mark: str) -> str | None:
    """The line after the one with `mark`."""
    lines = [line.strip() for line in text.splitlines()]
    for line, following in itertools.pairwise(lines):
        if mark in line:
            return following or None
    return None


def _check_seed(option: str, seed: str) -> None:
    try:
        nkeys = importlib.import_module("nkeys")  # an extra, and untyped
    except ModuleNotFoundError as error:
        raise ConnectionOptionsError(
            f"{option} needs the package nkeys: pip install 'towpath-worker[nkeys]'"
        ) from error
    try:
        nkeys.from_seed(bytearray(seed.encode())).wipe()
    except (nkeys.NkeysError, binascii.Error, ValueError) as error:
        raise ConnectionOptionsError(f"{option} holds no nkey seed") from error
