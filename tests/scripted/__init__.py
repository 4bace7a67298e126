"""Both ends of the gateway: a scripted upstream, which may misbehave, and a client of the gateway under uvicorn."""

from .gateway import Gateway, Reply, Stream, serve
from .upstream import Call, Script, Upstream, abandoned_then, delta, event, say

__all__ = [
    "Call",
    "Gateway",
    "Reply",
    "Script",
    "Stream",
    "Upstream",
    "abandoned_then",
    "delta",
    "event",
    "say",
    "serve",
]
