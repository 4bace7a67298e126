"""Runs over HTTP, in whatever protocol: what a server and an agent's own application have in common."""

from ..protocols import Encoder
from .http import ClientGone, Message, Receive, Scope, Send
from .streaming import FAULT, STOPPING, Answering, serve_response, serve_stream

__all__ = [
    "FAULT",
    "STOPPING",
    "Answering",
    "ClientGone",
    "Encoder",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "serve_response",
    "serve_stream",
]
