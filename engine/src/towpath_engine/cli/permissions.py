"""`towpath nats-permissions`: the exact rights of each party, as configuration of a nats-server.

Needs no server: rights follow from the names of the installation's prefix and queues.
"""

import os
from collections import Counter
from collections.abc import Sequence

from towpath_engine.bus.server_config import (
    NatsUser,
    accounts_config,
    client_user,
    engine_user,
    operator_user,
    pool_user,
    users_config,
)
from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_json, print_line, print_notice
from towpath_engine.settings import load_settings
from towpath_protocol.errors import ProtocolError


def nats_permissions(arguments: Arguments) -> Exit:
    """`towpath nats-permissions QUEUE…`"""
    prefix = _prefix(arguments)
    others = _parties(prefix, arguments)
    engine = engine_user(prefix, others)
    if not others and not arguments.engine:
        raise CommandError(
            Exit.USAGE, "whose rights? name queues, or give --engine, --client or --operator"
        )
    _check_variables([engine, *others])
    with_engine = arguments.engine or arguments.account
    users = [engine, *others] if with_engine else others
    if arguments.json:
        print_json({"users": [_as_json(user) for user in users]})
        return Exit.OK
    config = accounts_config(engine, others) if arguments.account else users_config(users)
    print_line(config.rstrip())
    variables = ", ".join(user.password_variable for user in users)
    print_notice(f"put the passwords, in quotes, into the server's environment: {variables}")
    if not with_engine:
        print_notice("the engines must be allowed to answer to these inboxes: see --engine")
    return Exit.OK


def _prefix(arguments: Arguments) -> str:
    """The prefix, and `--inbox`, held to the rules of the settings of these names."""
    environ = dict(os.environ)
    if arguments.prefix is not None:
        environ["TOWPATH_PREFIX"] = arguments.prefix
    if arguments.inbox is not None:
        environ["TOWPATH_NATS_INBOX_PREFIX"] = arguments.inbox
    return load_settings(environ, arguments.config).settings.prefix


def _parties(prefix: str, arguments: Arguments) -> list[NatsUser]:
    """Everybody who was asked for, but for the engine."""
    queues = list(dict.fromkeys(arguments.queues))
    if arguments.inbox is not None and len(queues) != 1:
        raise CommandError(Exit.USAGE, "--inbox is for the pool of one queue: name exactly one")
    try:
        pools = [pool_user(prefix, queue, inbox=arguments.inbox) for queue in queues]
    except ProtocolError as error:
        raise CommandError(Exit.USAGE, str(error)) from error
    clients = [client_user(prefix)] if arguments.client else []
    operators = [operator_user(prefix)] if arguments.operator else []
    return [*pools, *clients, *operators]


def _check_variables(users: Sequence[NatsUser]) -> None:
    """Two parties with one password would not be two parties."""
    for variable, count in Counter(user.password_variable for user in users).items():
        if count > 1:
            raise CommandError(
                Exit.USAGE,
                f"two of these queues would share the password variable {variable}: print the "
                "rights of one at a time, and call one variable otherwise",
            )


def _as_json(user: NatsUser) -> dict[str, object]:
    return {
        "user": user.name,
        "inbox_prefix": user.inbox,
        "publish": list(user.rights.publish),
        "subscribe": list(user.rights.subscribe),
    }
