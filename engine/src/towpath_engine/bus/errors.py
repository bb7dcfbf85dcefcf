"""What can go wrong between the engine and NATS, by who has to act."""


class BusError(Exception):
    """Base of the errors of the bus."""


class BusRefused(BusError):  # noqa: N818 - an outcome of start, named as the seam names it
    """The server, or what it holds, is not fit for Towpath. An operator must act.

    The message is one sentence and holds no credentials.
    """


class BusUnavailable(BusError):  # noqa: N818 - a passing state, named as the seam names it
    """No answer from NATS at the moment. The bus reconnects by itself; try again later."""


class JetStreamError(BusError):
    """The JetStream API answered with an error: `code` like HTTP, `err_code` of the server."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} ({code}/{err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description


class NoResponderError(BusUnavailable):
    """Nobody listens on the subject that was asked."""


class UnsendableMessageError(BusError):
    """This message can never be sent as it is: its subject, headers or size are refused."""
