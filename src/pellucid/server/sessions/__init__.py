"""Who is signed in with a browser, and how they get in and out: `/api/session`."""

from .routes import routes

__all__ = ["routes"]
