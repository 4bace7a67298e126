"""Who is signed in with a browser, and how they get in and out: `/api/session`."""

from .routes import TABLE, routes

__all__ = ["TABLE", "routes"]
