"""Error answers of the API, built in one place."""

from msgspec import Raw

from towpath_engine.bus.interface import ApiReply
from towpath_engine.services.work import Outcome
from towpath_protocol import codec
from towpath_protocol.errors import ERRORS, ErrorBody, ErrorCode, ErrorInfo, ProtocolError


class ApiFailureError(Exception):
    """A request that can't be fulfilled, with its code of the closed list."""

    def __init__(self, code: ErrorCode, message: str, details: object = None) -> None:
        self.code = code
        self.message = message
        self.details = details
        super().__init__(message)


def error_info(code: ErrorCode, message: str, details: object = None) -> ErrorInfo:
    """The inside of an error answer."""
    return ErrorInfo(
        code=code.value,
        message=message,
        details=Raw(codec.dumps({} if details is None else details)),
    )


def error_reply(code: ErrorCode, message: str, details: object = None) -> ApiReply:
    """An error answer with its status in the headers."""
    body = codec.encode(ErrorBody(error=error_info(code, message, details)))
    return ApiReply(body=body, code=ERRORS[code].status, description=message)


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
