"""uvicorn, with what it leaves to others; and all that is used of what it keeps to itself.

`http` and `websocket` are its protocols, subclassed; an application that is served by any other server, or behind
middleware, uses plain ASGI and nothing of this. `INTERNALS` names what no documentation of uvicorn promises: a test
holds it against the release that is installed.
"""

from __future__ import annotations

from .http import CONNECTION, DirectWriter, connections, direct_writer, on_disconnect
from .internals import INTERNALS
from .websocket import FRAMES, Frames, sockets

__all__ = [
    "CONNECTION",
    "FRAMES",
    "INTERNALS",
    "DirectWriter",
    "Frames",
    "connections",
    "direct_writer",
    "on_disconnect",
    "sockets",
]
