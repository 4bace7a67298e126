"""The chat of the page, and of whoever speaks as it does (seed 002; `docs/chat.md`)."""

from .routes import ADVERTISED_ROUTES, TABLE, routes

__all__ = ["ADVERTISED_ROUTES", "TABLE", "routes"]
