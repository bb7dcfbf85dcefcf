"""What can go wrong in `towpath dev` through no fault of the code."""


class DevError(Exception):
    """A server can't be started. The message is one sentence that names the fix where we know it.

    Lines of the server's own log, where they help, are in `log_tail`.
    """

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail
