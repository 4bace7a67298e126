"""A model is a wire, a profile, a door and settings."""

from .door import close_door
from .infer import infer_model
from .model import (
    Asked,
    HTTPModelStream,
    Model,
    ModelEventReceiver,
    ModelRead,
    ModelStream,
    StreamReader,
    TextReceiver,
    TextWriter,
)

__all__ = [
    "Asked",
    "HTTPModelStream",
    "Model",
    "ModelEventReceiver",
    "ModelRead",
    "ModelStream",
    "StreamReader",
    "TextReceiver",
    "TextWriter",
    "close_door",
    "infer_model",
]
