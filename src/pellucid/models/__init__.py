"""A model is a wire, a profile, a door and settings."""

from .model import Model, Turn

__all__ = ["Model", "Turn"]
