"""A model is a wire, a profile, a door and settings."""

from .model import Asked, Model, Turn

__all__ = ["Asked", "Model", "Turn"]
