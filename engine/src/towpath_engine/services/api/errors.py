"""What a request may fail with, as the code, message and details of its error answer."""

from towpath_engine.services.work import Outcome
from towpath_protocol.errors import ErrorCode, ProtocolError


class ApiFailureError(Exception):
    """A request that can't be fulfilled, with its code of the closed list."""

    def __init__(self, code: ErrorCode, message: str, details: object = None) -> None:
        self.code = code
        self.message = message
        self.details = details
        super().__init__(message)


def of_protocol_error(error: ProtocolError) -> tuple[ErrorCode, str, dict[str, str]]:
    """Code, message and details of a request that breaks the protocol."""
    details = {"field": error.field, "fix": error.fix}
    return error.code, str(error), {name: text for name, text in details.items() if text}


def failure_of(outcome: Outcome) -> ApiFailureError:
    """The failure that an outcome means for somebody who asked for an answer."""
    code = ErrorCode.INTERNAL if outcome.code is None else ErrorCode(outcome.code)
    if code is ErrorCode.POISON:
        return ApiFailureError(
            ErrorCode.INTERNAL, "the engine could not apply the request; see its log"
        )
    return ApiFailureError(code, outcome.message, outcome.details)
