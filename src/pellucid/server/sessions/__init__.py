"""Browser sessions: `/api/session`, where people sign in and out."""

from .routes import TABLE, routes

__all__ = ["TABLE", "routes"]
