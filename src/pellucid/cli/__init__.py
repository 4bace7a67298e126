"""The command line. Each command is a thin layer over another package, and prints for a person or for a pipe."""

from .main import main

__all__ = ["main"]
