"""Identities that a nats-server demands: nkeys and JWTs, made here for one test each.

The JWTs are those of an operator of our own, so that the server checks them as it does in
production; only the claims that it looks at are there.
"""

import base64
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys

# nkeys has no types.
_nkeys: Any = nkeys


class Identity:
    """A key pair of nkeys. `kind` is `operator`, `account` or `user`."""

    def __init__(self, kind: str) -> None:
        prefixes = {
            "operator": nkeys.PREFIX_BYTE_OPERATOR,
            "account": nkeys.PREFIX_BYTE_ACCOUNT,
            "user": nkeys.PREFIX_BYTE_USER,
        }
        encoded: bytes = _nkeys.encode_seed(os.urandom(32), prefixes[kind])
        self.seed = encoded.decode()
        pair = _nkeys.from_seed(bytearray(encoded))
        self._pair = pair
        self.public: str = pair.public_key.decode()

    def signed(self, claims: dict[str, Any]) -> str:
        """A JWT with these claims, issued by this identity."""
        claims = {"iat": int(time.time()), "iss": self.public, **claims}
        claims["jti"] = hashlib.sha256(json.dumps(claims).encode()).hexdigest()
        header = {"typ": "JWT", "alg": "ed25519-nkey"}
        text = f"{_part(header)}.{_part(claims)}"
        signature: bytes = self._pair.sign(text.encode())
        return f"{text}.{_encoded(signature)}"


class Operator:
    """An operator with one account; `config` is what a server needs to trust it."""

    def __init__(self) -> None:
        self._operator = Identity("operator")
        self._account = Identity("account")
        # Without one of these no server of an operator has JetStream.
        self._system = Identity("account")

    @property
    def config(self) -> str:
        """For a nats-server: the operator, and the account in a resolver in memory."""
        operator = self._operator.signed(
            {"sub": self._operator.public, "name": "O", "nats": {"type": "operator", "version": 2}}
        )
        counted = ("subs", "conn", "leaf", "imports", "exports", "data", "payload")
        stored = ("mem_storage", "disk_storage", "streams", "consumer")
        unlimited = {**dict.fromkeys(counted + stored, -1), "wildcards": True}
        accounts = {
            identity.public: self._operator.signed(
                {
                    "sub": identity.public,
                    "name": name,
                    "nats": {"type": "account", "version": 2, "limits": limits},
                }
            )
            for identity, name, limits in (
                (self._account, "A", unlimited),
                (self._system, "SYS", dict.fromkeys(counted, -1)),
            )
        }
        preload = "\n".join(f"  {public}: {jwt}" for public, jwt in accounts.items())
        return (
            f"operator: {operator}\nsystem_account: {self._system.public}\n"
            f"resolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"
        )

    def write_credentials(self, path: Path, *, valid_seconds: int = 3600) -> Path:
        """A `.creds` file of a new user of the account."""
        user = Identity("user")
        jwt = self._account.signed(
            {
                "sub": user.public,
                "name": "U",
                "exp": int(time.time()) + valid_seconds,
                "nats": {
                    "type": "user",
                    "version": 2,
                    "subs": -1,
                    "data": -1,
                    "payload": -1,
                    "pub": {},
                    "sub": {},
                },
            }
        )
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )
        return path


def _part(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
