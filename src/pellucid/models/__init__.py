"""Models: a wire, a profile, a connection pool and settings together."""

from .connection_pool import close_shared_pool
from .infer import infer_model
from .model import (
    ChatModel,
    HTTPModelStream,
    Model,
    ModelEventReceiver,
    ModelRead,
    ModelStream,
    ServedModel,
    StreamReader,
    TextReceiver,
    TextWriter,
)

__all__ = [
    "ChatModel",
    "HTTPModelStream",
    "Model",
    "ModelEventReceiver",
    "ModelRead",
    "ModelStream",
    "ServedModel",
    "StreamReader",
    "TextReceiver",
    "TextWriter",
    "close_shared_pool",
    "infer_model",
]
