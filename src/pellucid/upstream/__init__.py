"""HTTP/1.1 client for model servers. It processes one socket read at a time and does not interpret the bytes.

The modules, from the outermost to the innermost:

* `client`: requests and retries.
* `connector`: DNS, TCP and TLS; the pool of idle connections.
* `request`: the URL and the request head.
* `connection`: one request and its response on a socket.
* `parsing`, `decompression`: the response head and body.
* `limits`: time limits.
* `response`: the interface for the receiver of a body.
* `errors`: failures, and the error that each of them becomes.
"""

from .client import UpstreamClient
from .errors import TURN_TOO_LONG
from .limits import Limits, Seconds
from .response import UpstreamResponse

__all__ = [
    "TURN_TOO_LONG",
    "Limits",
    "Seconds",
    "UpstreamClient",
    "UpstreamResponse",
]
