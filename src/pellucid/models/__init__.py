"""A model is a wire, a profile, a door and settings."""

from .door import close_door
from .infer import infer_model
from .model import Asked, Model, Turn

__all__ = ["Asked", "Model", "Turn", "close_door", "infer_model"]
