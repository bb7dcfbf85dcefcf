"""Verbs that run something here: dev, serve, migrate, settings, worker."""

import asyncio
import os
from collections.abc import Callable, Mapping

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.output import print_json, print_line, print_table
from towpath_engine.secrets import masker
from towpath_engine.settings import ENV_PREFIX, describe_settings, load_settings, secrets_of


def dev(arguments: Arguments) -> Exit:
    """`towpath dev`"""
    from towpath_engine.dev.options import DevOptions
    from towpath_engine.dev.supervisor import run

    run(
        DevOptions(
            data_dir=None if arguments.ephemeral else arguments.data_dir,
            prefix=_checked_prefix(arguments),
            nats_port=arguments.nats_port or None,
            nats_url=arguments.nats_url,
            postgres_port=arguments.postgres_port or None,
            postgres_url=arguments.postgres_url,
            http_port=arguments.http_port or None,
            engine_count=arguments.engines,
            config_file=arguments.config,
            json=arguments.json,
        )
    )
    return Exit.OK


def serve(arguments: Arguments) -> Exit:
    """`towpath serve`"""
    import uvloop

    from towpath_engine import app
    from towpath_engine.logs import configure_logs

    settings = load_settings(os.environ, arguments.config).settings
    configure_logs(
        level=settings.log_level,
        log_format=settings.log_format,
        mask=masker(secrets_of(settings)),
    )
    status = uvloop.run(app.serve(settings))
    return {app.EXIT_REFUSED: Exit.REFUSED, app.EXIT_UNAVAILABLE: Exit.UNREACHABLE}.get(
        status, Exit.OK
    )


def migrate(arguments: Arguments) -> Exit:
    """`towpath migrate`"""
    from towpath_engine.store.migrate import migrate as migrate_schema

    settings = load_settings(os.environ, arguments.config).settings
    applied = asyncio.run(migrate_schema(settings.postgres_url, settings.postgres_schema))
    if arguments.json:
        print_json({"schema": settings.postgres_schema, "applied": applied})
    elif applied:
        print_line(f"Applied to schema {settings.postgres_schema}: {', '.join(applied)}")
    else:
        print_line(f"Schema {settings.postgres_schema} is up to date.")
    return Exit.OK


def settings(arguments: Arguments) -> Exit:
    """`towpath settings`"""
    entries = describe_settings(load_settings(os.environ, arguments.config))
    rows = [msgspec.structs.asdict(entry) for entry in entries]
    if arguments.json:
        print_json({"settings": rows})
    else:
        print_table(("variable", "value", "default", "unit", "source", "description"), rows)
    return Exit.OK


def worker(arguments: Arguments) -> Exit:
    """`towpath worker MODULE:NAME …`"""
    from towpath_worker.command import WorkerArguments, start
    from towpath_worker.options import FROM_ENVIRONMENT

    if arguments.config or os.environ.get("TOWPATH_CONFIG"):
        settings = load_settings(os.environ, arguments.config).settings
        for variable in FROM_ENVIRONMENT.values():
            value = getattr(settings, variable.removeprefix(ENV_PREFIX).lower())
            os.environ[variable] = str(value)
    status = start(WorkerArguments(**vars(arguments)))
    # A module of theirs may have called sys.exit with anything.
    return Exit(status) if status in list(Exit) else Exit.BUG


def _checked_prefix(arguments: Arguments) -> str | None:
    """The prefix of `--prefix`, held to the setting's rules."""
    if arguments.prefix is None:
        return None
    return load_settings({"TOWPATH_PREFIX": arguments.prefix}).settings.prefix


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {
    "dev": dev,
    "serve": serve,
    "migrate": migrate,
    "settings": settings,
    "worker": worker,
}
