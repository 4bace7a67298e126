"""The chat of the page, and of whoever speaks as it does (seed 002; `docs/chat.md`)."""

from .routes import SPOKEN, TABLE, routes

__all__ = ["SPOKEN", "TABLE", "routes"]
