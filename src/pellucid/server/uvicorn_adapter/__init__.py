"""uvicorn, with what it leaves to others; and all that is used of what it keeps to itself.

`http` and `websocket` are its protocols, subclassed; an application that is served by any other server, or behind
middleware, uses plain ASGI and nothing of this. `INTERNALS` names what no documentation of uvicorn promises: a test
holds it against the release that is installed.
"""

from __future__ import annotations

from .http import CONNECTION_EXTENSION, DirectWriter, direct_writer, http_protocol_class, on_disconnect
from .internals import INTERNALS
from .websocket import FRAMES_EXTENSION, FrameTransport, websocket_protocol_class

__all__ = [
    "CONNECTION_EXTENSION",
    "FRAMES_EXTENSION",
    "INTERNALS",
    "DirectWriter",
    "FrameTransport",
    "direct_writer",
    "http_protocol_class",
    "on_disconnect",
    "websocket_protocol_class",
]
