"""A model is a wire, a profile, a door and settings."""

from .door import close_door
from .infer import infer_model
from .model import Asked, Model, ModelEventReceiver, ModelRead, ModelStream
from .stream_reader import StreamReader

__all__ = [
    "Asked",
    "Model",
    "ModelEventReceiver",
    "ModelRead",
    "ModelStream",
    "StreamReader",
    "close_door",
    "infer_model",
]
