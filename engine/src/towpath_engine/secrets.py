"""Keeps secrets out of what is written for people: log lines, error texts, the list of settings.

Two ways, because each has gaps. Whatever looks like a secret in a URL is masked, wherever it comes
from. And the secrets that this process was given are masked by value, so that a library may put
them into an error in any form it likes.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

MASK: Final = "***"
_LENGTH_MIN: Final = 6
"""Shorter ones are only masked in URLs: by value they would blot out half of every line."""
_NO_SECRETS: Final = frozenset({"towpath", "postgres", "password"})
"""Passwords of development that are also words of every log line."""
_SECRET_PARAMETERS: Final = frozenset({"password", "sslpassword"})


def mask_secrets(text: str) -> str:
    """The text with passwords and tokens of URLs in it replaced by `***`.

    A password is what stands between `:` and the last `@` of an authority, a token is user
    information without a colon in a NATS URL; `password=` and `sslpassword=` parameters too.
    """
    text = re.sub(r"(://[^/?#\s:@]*):[^/?#\s,]*@", rf"\1:{MASK}@", text)
    text = re.sub(r"((?:nats|tls|wss?)://)[^/?#\s:@,]+@", rf"\1{MASK}@", text)
    return re.sub(r"((?:ssl)?password=)[^&\s,]*", rf"\1{MASK}", text, flags=re.IGNORECASE)


def masker(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that masks these secrets, as they are or escaped, and those of URLs."""
    spelt = {form for secret in secrets for form in _forms(secret)}
    if not spelt:
        return mask_secrets
    # The longest first: one may be part of another.
    pattern = re.compile("|".join(map(re.escape, sorted(spelt, key=len, reverse=True))))
    return lambda text: pattern.sub(MASK, mask_secrets(text))


def secrets_of_url(url: str) -> Iterator[str]:
    """The password, token or secret parameters of one URL, decoded. A broken URL has none."""
    try:
        parts = urlsplit(url.strip())
        password, user = parts.password, parts.username
    except ValueError:
        return
    if password:
        yield unquote(password)
    elif user and parts.scheme in {"nats", "tls", "ws", "wss"}:
        yield unquote(user)
    for name, value in parse_qsl(parts.query):
        if name in _SECRET_PARAMETERS:
            yield value


def _forms(secret: str) -> Iterator[str]:
    """How a secret may be spelt in a log line."""
    if len(secret) < _LENGTH_MIN or secret in _NO_SECRETS:
        return
    yield secret
    yield quote(secret, safe="")
    yield quote(secret)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
