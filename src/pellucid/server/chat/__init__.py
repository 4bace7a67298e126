"""The chat API, which the page uses (seed 002; `docs/chat.md`)."""

from .routes import ADVERTISED_ROUTES, TABLE, routes

__all__ = ["ADVERTISED_ROUTES", "TABLE", "routes"]
