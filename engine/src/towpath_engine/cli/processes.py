"""Verbs that run something here: dev, serve, migrate, settings, worker."""

import asyncio
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_json, print_line, print_notice, print_table
from towpath_engine.cli.table import Layout
from towpath_engine.secrets import mask_secrets, masker
from towpath_engine.settings import (
    ENV_PREFIX,
    LoadedSettings,
    describe_settings,
    load_settings,
    secrets_of,
)

if TYPE_CHECKING:
    from towpath_worker.dev_server import DevServer

SDK = "towpath_worker"
_SETTINGS_LAYOUT = Layout(below=("value", "description"), spare=("default",), whole=("variable",))


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
    loaded = load_settings(os.environ, arguments.config)
    dev = _dev_server(loaded)
    found = {} if dev is None else {"nats_url": mask_secrets(dev.nats_url), "prefix": dev.prefix}
    rows = [msgspec.structs.asdict(entry) for entry in describe_settings(loaded)]
    for row in rows:
        if row["name"] in found and row["name"] not in loaded.sources:
            row.update(value=found[row["name"]], source="towpath dev")
    if arguments.json:
        print_json({"settings": rows})
    else:
        columns = ("variable", "value", "default", "unit", "source", "description")
        print_table(columns, rows, _SETTINGS_LAYOUT)
    if dev is not None:
        print_notice(
            f"commands, workers and clients go to the `towpath dev` of {dev.folder}: "
            f"{found['nats_url']}, prefix {dev.prefix}; `towpath serve` does not look there"
        )
    return Exit.OK


def _dev_server(loaded: LoadedSettings) -> "DevServer | None":
    """The `towpath dev` to which commands, workers and clients go from here; None when they go
    where an engine of these settings would."""
    if any(name.startswith("nats_") for name in loaded.sources) or find_spec(SDK) is None:
        return None
    from towpath_worker.dev_server import running_dev_server

    return running_dev_server()


def worker(arguments: Arguments) -> Exit:
    """`towpath worker MODULE:NAME …`"""
    from towpath_engine.cli.connection import warn_of_a_stopped_server
    from towpath_worker.command import WorkerArguments, start
    from towpath_worker.options import FROM_ENVIRONMENT

    for target in arguments.targets:
        _check_module(target)
    if arguments.config or os.environ.get("TOWPATH_CONFIG"):
        loaded = load_settings(os.environ, arguments.config)
        for variable in FROM_ENVIRONMENT.values():
            name = variable.removeprefix(ENV_PREFIX).lower()
            # What nobody has said, the SDK finds out as it does for programs of their own.
            if name in loaded.sources:
                os.environ[variable] = str(getattr(loaded.settings, name))
    warn_of_a_stopped_server(arguments)
    status = start(WorkerArguments(**vars(arguments)))
    # A module of theirs may have called sys.exit with anything.
    return Exit(status) if status in list(Exit) else Exit.BUG


def _check_module(target: str) -> None:
    """Raises CommandError for a file where a module is wanted: `shop.py:worker`."""
    file, colon, name = target.partition(":")
    module = file.removesuffix(".py").removeprefix("./").replace("/", ".")
    if module != file:
        right = f"{module}:{name if colon else 'NAME'}"
        raise CommandError(
            Exit.USAGE,
            f"{target!r} names a file, and a module is wanted: try {right!r}, from the folder in "
            "which it can be imported",
        )


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
