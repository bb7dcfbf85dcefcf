"""What a store raises. Everything that can be expected is a returned value instead."""


class StoreError(Exception):
    """A store could not do what it was asked. Raised only as one of its three children."""


class StoreUnavailable(StoreError):  # noqa: N818 - the seam's own word
    """Nothing was written and the same call may succeed later: connection lost, shutdown, resource
    shortage, timeout, serialization failure, deadlock. Retry the whole batch, with backoff.

    A connection lost during a commit leaves open whether it happened: read again before deciding.
    """


class StatementTimedOut(StoreUnavailable):
    """The server cancelled the statement, which took too long: a smaller batch may pass."""


class StoreRejected(StoreError):  # noqa: N818 - the seam's own word
    """Nothing was written and the same call can never succeed: a constraint or the data forbid it.
    Bisect the batch. `constraint` is the name of the violated one, if there is one.
    """

    def __init__(self, message: str, *, constraint: str | None = None) -> None:
        super().__init__(message)
        self.constraint = constraint


class PausesChanged(StoreError):  # noqa: N818 - the seam's own word
    """Nothing was written: somebody paused or resumed something since the batch was decided. Read
    the pauses and decide the batch again."""


class CursorError(Exception):
    """A cursor that no page of this store has handed out."""


class SchemaMismatch(Exception):  # noqa: N818 - the seam's own word
    """The schema in the database is not the one this engine needs. The message is one sentence
    that names the fix.
    """
