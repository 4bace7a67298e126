"""Both ends of the gateway: an upstream that misbehaves to order, and a client of the gateway as it is served."""

from .gateway import Gateway, Reply, Stream, serve
from .upstream import Call, Script, Upstream, delta, event, left_then, say

__all__ = ["Call", "Gateway", "Reply", "Script", "Stream", "Upstream", "delta", "event", "left_then", "say", "serve"]
