"""What people are told when a command fails: one sentence and an exit status, never a traceback
for something that they or a server did.
"""

from collections.abc import Sequence

from msgspec import Struct

from towpath_engine.cli.exits import Exit
from towpath_engine.secrets import mask_secrets


class CommandError(Exception):
    """Ends a command: `message` goes to stderr, with `details` below it, one a line."""

    def __init__(self, status: Exit, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.details = tuple(details)


class Told(Struct, frozen=True, kw_only=True):
    """A failure in words."""

    status: Exit
    message: str
    details: tuple[str, ...] = ()


def explain(error: BaseException) -> Told | None:
    """The failure in words; None when the error is nobody's but ours (a bug).

    Imports only what has been imported already in a process that can raise it, so that a command
    that uses no Postgres does not load it.
    """
    match error:
        case CommandError():
            return Told(status=error.status, message=str(error), details=error.details)
        case KeyboardInterrupt():
            return Told(status=Exit.INTERRUPTED, message="interrupted")
        case ModuleNotFoundError(name="towpath_worker"):
            return Told(
                status=Exit.USAGE,
                message="this command needs the worker SDK: pip install 'towpath-engine[dev]'",
            )
        case _:
            status = _STATUS_BY_NAME.get(f"{type(error).__module__}.{type(error).__qualname__}")
    if status is None:
        return None
    details = str(getattr(error, "log_tail", "")).splitlines()
    message = mask_secrets(" ".join(str(error).split())) or type(error).__name__
    return Told(status=status, message=message, details=tuple(details))


_STATUS_BY_NAME = {
    "towpath_engine.settings.SettingsError": Exit.USAGE,
    "towpath_engine.cli.documents.DocumentError": Exit.USAGE,
    "towpath_engine.dev.errors.DevError": Exit.REFUSED,
    "towpath_engine.store.errors.StoreUnavailable": Exit.UNREACHABLE,
    "towpath_engine.store.errors.StoreRejected": Exit.REFUSED,
    "towpath_engine.store.errors.SchemaMismatch": Exit.REFUSED,
    "towpath_engine.bus.errors.BusUnavailable": Exit.UNREACHABLE,
    "towpath_engine.bus.errors.BusRefused": Exit.REFUSED,
    "towpath_engine.health.PortUnavailable": Exit.REFUSED,
}
