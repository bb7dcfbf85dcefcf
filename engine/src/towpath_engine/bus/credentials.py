"""What the files of a connection to NATS hold: credentials, nkey seed, certificates.

Checked here before the client gets to see them, because it does not forgive: a `.creds` file
without its marks would make it read for ever. Errors name the file, never what is in it. The
worker SDK has a twin of this module, since neither distribution needs the other.
"""

import binascii
import importlib
import itertools
import ssl
from pathlib import Path
from typing import Any

from towpath_engine.bus.errors import BusRefused
from towpath_engine.bus.settings import BusSettings


def read_credentials(file: str | None) -> str | None:
    """A `.creds` file as text: JWT and seed between their marks; None when none is named.

    Raises BusRefused when it can't be read or is none.
    """
    if file is None:
        return None
    text = _read(file)
    jwt = _after(text, "BEGIN NATS USER JWT")
    seed = _after(text, "BEGIN USER NKEY SEED")
    if jwt is None or seed is None:
        lacking = "JWT" if jwt is None else "seed"
        raise BusRefused(f"{file} is no NATS credentials file: it lacks its {lacking}.")
    _check_seed(file, seed)
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def read_nkey_seed(file: str | None) -> str | None:
    """The seed of an nkey seed file; None when none is named.

    Raises BusRefused when it can't be read or holds no seed.
    """
    if file is None:
        return None
    seed = _read(file).strip()
    _check_seed(file, seed)
    return seed


def tls_context(settings: BusSettings) -> ssl.SSLContext | None:
    """What TLS trusts and shows; None without a demand for TLS. Raises BusRefused."""
    if not settings.demands_tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file)
        if settings.tls_cert_file:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
    except (OSError, ssl.SSLError) as error:
        raise BusRefused(f"The TLS files for NATS can't be used: {error}.") from error
    return context


def _read(file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except FileNotFoundError as error:
        raise BusRefused(f"The NATS credentials file {file} does not exist.") from error
    except OSError as error:
        raise BusRefused(f"The NATS credentials file {file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise BusRefused(f"The NATS credentials file {file} is no text.") from error


def _after(text: str, mark: str) -> str | None:
    """The line after the one with `mark`."""
    lines = [line.strip() for line in text.splitlines()]
    for line, following in itertools.pairwise(lines):
        if mark in line:
            return following or None
    return None


def _check_seed(file: str, seed: str) -> None:
    try:
        nkeys: Any = importlib.import_module("nkeys")  # an extra, without types
    except ModuleNotFoundError as error:
        raise BusRefused(
            f"{file} needs the package nkeys: pip install 'towpath-engine[nkeys]'."
        ) from error
    try:
        nkeys.from_seed(bytearray(seed.encode())).wipe()
    except (nkeys.NkeysError, binascii.Error, ValueError) as error:
        raise BusRefused(f"{file} holds no nkey seed.") from error
