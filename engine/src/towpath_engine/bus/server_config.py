"""Rights as the configuration of a nats-server: users of one account, or an account for each party.

In the form of users everybody shares the engine's account, and the server checks what is published
and subscribed to, but not reply subjects: a party can have it write answers (PubAcks, copies of
its own dispatches) to any subject. Such junk never passes for a report, but it can fill streams. In
the form of accounts a party reaches nothing but what its account imports, replies included.

Passwords stand in the environment of the server, so that none is printed; a server without the
variable does not start.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from towpath_engine.bus.rights import (
    Party,
    client_rights,
    engine_rights,
    operator_rights,
    party_inbox,
    pool_inbox,
)
from towpath_protocol import subjects
from towpath_protocol.subjects import Permissions

_PULL = "$JS.API.CONSUMER.MSG.NEXT."


class NatsUser(Struct, frozen=True, kw_only=True):
    """One user of the server and, in the form of accounts, its account."""

    name: str
    what: str
    """Who it is, in words."""
    inbox: str
    """The inbox prefix that it must be told to use."""
    rights: Permissions

    @property
    def account(self) -> str:
        """The name of its account."""
        return self.name

    @property
    def password_variable(self) -> str:
        """The variable in the server's environment that holds its password, in quotes."""
        return re.sub(r"[^A-Za-z0-9]", "_", self.name) + "_password"


def pool_user(prefix: str, queue: str, *, inbox: str | None = None) -> NatsUser:
    """The user of a queue's pool. Raises ProtocolError for names that are none."""
    return NatsUser(
        name=f"{prefix}-pool-{queue}",
        what=f"the workers of the queue {queue}",
        inbox=inbox or pool_inbox(queue),
        rights=subjects.permissions(prefix, queue, inbox=inbox),
    )


def engine_user(prefix: str, others: Sequence[NatsUser] = ()) -> NatsUser:
    """The engines' user, who answers to the inboxes of `others`."""
    return NatsUser(
        name=f"{prefix}-engine",
        what="the engines",
        inbox=party_inbox(prefix, Party.ENGINE),
        rights=engine_rights(prefix, reply_to=[user.inbox for user in others]),
    )


def client_user(prefix: str) -> NatsUser:
    """The user of services that start and signal runs."""
    return NatsUser(
        name=f"{prefix}-client",
        what="services that start, signal, cancel and read runs",
        inbox=party_inbox(prefix, Party.CLIENT),
        rights=client_rights(prefix),
    )


def operator_user(prefix: str) -> NatsUser:
    """The user of those who deploy and repair."""
    return NatsUser(
        name=f"{prefix}-operator",
        what="operators and pipelines: the whole API",
        inbox=party_inbox(prefix, Party.OPERATOR),
        rights=operator_rights(prefix),
    )


def users_config(users: Sequence[NatsUser]) -> str:
    """The block `authorization` with these users and their complete rights."""
    lines = ["authorization {", "  users: ["]
    for user in users:
        lines += [
            *_comment("    ", user),
            "    {",
            *_login("      ", user),
            "      permissions: {",
            *_allow("        ", "publish", user.rights.publish),
            *_allow("        ", "subscribe", user.rights.subscribe),
            "      }",
            "    }",
        ]
    return "\n".join([*lines, "  ]", "}"]) + "\n"


def accounts_config(engine: NatsUser, others: Sequence[NatsUser]) -> str:
    """The block `accounts`: the engine's with JetStream and exports, and one for each other party.

    The engine's user keeps its complete rights; the others can reach nothing but their imports.
    """
    lines = [
        "accounts {",
        *_comment("  ", engine),
        f"  {_quoted(engine.account)}: {{",
        "    jetstream: enabled",
        "    users: [ {",
        *_login("      ", engine),
        "      permissions: {",
        *_allow("        ", "publish", engine.rights.publish),
        *_allow("        ", "subscribe", engine.rights.subscribe),
        "      }",
        "    } ]",
        "    exports: [",
        *(f"      {line}" for line in _exports(others)),
        "    ]",
        "  }",
    ]
    for user in others:
        lines += [
            *_comment("  ", user),
            f"  {_quoted(user.account)}: {{",
            "    users: [ {",
            *_login("      ", user),
            "    } ]",
            "    imports: [",
            *(f"      {line}" for line in _imports(engine, user)),
            "    ]",
            "  }",
        ]
    return "\n".join([*lines, "}"]) + "\n"


def _exports(others: Sequence[NatsUser]) -> Iterable[str]:
    """One line a subject, with all accounts that may import it."""
    services = _by_subject((user, user.rights.publish) for user in others)
    for subject, accounts in services.items():
        # A pull is answered by many messages.
        answers = ", response_type: stream" if subject.startswith(_PULL) else ""
        yield f"{{ service: {_quoted(subject)}, accounts: {_list(accounts)}{answers} }}"
    streams = _by_subject((user, _streams(user)) for user in others)
    for subject, accounts in streams.items():
        yield f"{{ stream: {_quoted(subject)}, accounts: {_list(accounts)} }}"


def _imports(engine: NatsUser, user: NatsUser) -> Iterable[str]:
    for kind, found in (("service", user.rights.publish), ("stream", _streams(user))):
        for subject in found:
            source = f"{{ account: {_quoted(engine.account)}, subject: {_quoted(subject)} }}"
            yield f"{{ {kind}: {source} }}"


def _streams(user: NatsUser) -> list[str]:
    """What it listens to of the engine: not its inbox, which is in its own account."""
    return [subject for subject in user.rights.subscribe if subject != f"{user.inbox}.>"]


def _by_subject(
    rights: Iterable[tuple[NatsUser, Sequence[str]]],
) -> Mapping[str, list[str]]:
    accounts: dict[str, list[str]] = {}
    for user, found in rights:
        for subject in found:
            accounts.setdefault(subject, []).append(user.account)
    return accounts


def _comment(indent: str, user: NatsUser) -> list[str]:
    return [f"{indent}# {user.what}; TOWPATH_NATS_INBOX_PREFIX={user.inbox}"]


def _login(indent: str, user: NatsUser) -> list[str]:
    return [
        f"{indent}user: {_quoted(user.name)}",
        f"{indent}password: ${user.password_variable}",
    ]


def _allow(indent: str, side: str, found: Sequence[str]) -> list[str]:
    return [
        f"{indent}{side}: {{ allow: [",
        *(f"{indent}  {_quoted(subject)}" for subject in found),
        f"{indent}] }}",
    ]


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, names))}]"


def _quoted(text: str) -> str:
    """Every text here is a name or a subject, which hold neither quotes nor backslashes."""
    return f'"{text}"'
