"""Connections to models' servers: HTTP/1.1, a read at a time. Nothing here knows what the bytes mean.

From the outside in: `client` (tries), `pool` and `connecting` (connections), `request` (what is sent), `connection`
(one exchange on a socket), `parsing` and `decoding` (what comes back), `limits` (for how long), `response` (the
receiver's side, pushed or pulled), `errors` (what can go wrong).
"""

from .client import RETRY_STATUSES, UpstreamClient
from .limits import Limits, Seconds
from .response import BodyReceiver, UpstreamResponse

__all__ = [
    "RETRY_STATUSES",
    "BodyReceiver",
    "Limits",
    "Seconds",
    "UpstreamClient",
    "UpstreamResponse",
]
