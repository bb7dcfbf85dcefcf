"""TLS with Postgres, which asyncpg does as the URL says (`sslmode`, `sslrootcert` and so on).

Here is what it leaves out: which file can't be read, and what to do about a certificate.
"""

import ssl
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from towpath_engine.store.errors import StoreUnavailable

_FILES: Final = frozenset({"sslrootcert", "sslcert", "sslkey"})


def check_tls_files(dsn: str) -> None:
    """Raises StoreUnavailable, in one sentence, when a file that the URL names can't be read."""
    for name, path in parse_qsl(urlsplit(dsn).query):
        if name not in _FILES:
            continue
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            message = f"no connection to Postgres: {name}={path} can't be read: {error.strerror}"
            raise StoreUnavailable(message) from error


def tls_reason(fault: BaseException) -> str | None:
    """A fault of TLS in one sentence with its fix; None when it is none."""
    match fault:
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of the Postgres server is not trusted ({fault.verify_message}): "
                "check sslrootcert and the host in postgres_url"
            )
        case ssl.SSLError():
            return f"TLS with Postgres failed ({fault.reason or fault}): check sslcert and sslkey"
        case ConnectionError() if "rejected SSL upgrade" in str(fault):
            return "the Postgres server speaks no TLS, which sslmode demands"
        case _:
            return None
