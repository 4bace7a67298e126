"""The command line. Each command is a thin skin over a room below; what it prints is for a person or for a pipe."""

from .main import main

__all__ = ["main"]
