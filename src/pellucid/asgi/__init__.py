"""Runs over HTTP in any client protocol: the code that the server and an agent's ASGI application share."""

from ..protocols import Encoder
from .http import ClientGone, Message, Receive, Scope, Send
from .streaming import FAULT, STOPPING, StreamExchange, serve_response, serve_stream

__all__ = [
    "FAULT",
    "STOPPING",
    "ClientGone",
    "Encoder",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "StreamExchange",
    "serve_response",
    "serve_stream",
]
