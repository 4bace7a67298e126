"""OpenResponses over HTTP and WebSocket: `/v1/responses`, what is kept of them, and conversations."""

from .routes import routes

__all__ = ["routes"]
