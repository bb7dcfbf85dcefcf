"""Messages, subjects, limits and codec of the Towpath protocol, version 1.

Data only: no I/O, no clock, no chance. The norm is PROTOCOL.md; this package is its Python form.
Import the modules: `reports` and `dispatch` (worker ↔ engine), `requests` and `replies` (the API),
`events`, `failures`, `errors`, `subjects`, `headers`, `ids`, `priorities`, `limits`, `bounds`,
`codec`, `times`, `versions`.
"""

from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.limits import WireLimits
from towpath_protocol.versions import CURRENT, OLDEST_SUPPORTED

__version__ = "0.1.0"

__all__ = [
    "CURRENT",
    "OLDEST_SUPPORTED",
    "ErrorCode",
    "ProtocolError",
    "WireLimits",
    "__version__",
]
