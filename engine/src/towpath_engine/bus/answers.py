"""Error answers of the API: one form, whoever refuses (the bus itself, or a handler behind it)."""

from msgspec import Raw

from towpath_engine.bus.interface import ApiReply
from towpath_protocol import codec
from towpath_protocol.errors import ERRORS, ErrorBody, ErrorCode, ErrorInfo


def error_info(code: ErrorCode, message: str, details: object = None) -> ErrorInfo:
    """The inside of an error answer; `details` is an object of JSON, None an empty one."""
    return ErrorInfo(
        code=code.value,
        message=message,
        details=Raw(codec.dumps({} if details is None else details)),
    )


def error_reply(code: ErrorCode, message: str, details: object = None) -> ApiReply:
    """An error answer with the status of its code in the headers."""
    body = codec.encode(ErrorBody(error=error_info(code, message, details)))
    return ApiReply(body=body, code=ERRORS[code].status, description=message)
