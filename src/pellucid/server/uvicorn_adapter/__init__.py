"""Adapter of uvicorn: subclasses of its protocols, and all that is used of its undocumented attributes.

`http` and `websocket` subclass its protocols. An application that is served by another server, or behind middleware,
uses plain ASGI and nothing of this. `INTERNALS` lists what uvicorn does not document; a test checks it against the
installed release.
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
