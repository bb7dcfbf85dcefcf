"""`towpath database-role`: what the role of `towpath serve` needs in Postgres, and no more."""

import asyncio
import os

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.output import print_json, print_line, print_notice
from towpath_engine.settings import load_settings


def database_role(arguments: Arguments) -> Exit:
    """`towpath database-role ROLE`: prints the statements, or runs them with `--apply`."""
    from towpath_engine.store.role import grant_role, role_grants

    settings = load_settings(os.environ, arguments.config).settings
    schema = settings.postgres_schema
    if arguments.apply:
        statements = asyncio.run(grant_role(settings.postgres_url, schema, arguments.role))
    else:
        statements = role_grants(schema, arguments.role)
    if arguments.json:
        print_json({"schema": schema, "role": arguments.role, "applied": arguments.apply,
                    "statements": statements})  # fmt: skip
    elif arguments.apply:
        print_line(f"Role {arguments.role} may now serve schema {schema}.")
    else:
        print_notice("to be run by the owner of the schema, who runs `towpath migrate`")
        for statement in statements:
            print_line(f"{statement};")
    return Exit.OK
