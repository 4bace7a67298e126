"""Models: a wire, a profile, a connection pool and settings together.

`ALLOW_MODEL_REQUESTS = False` refuses requests to real models, so that a test makes none by mistake.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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
    "ALLOW_MODEL_REQUESTS",
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
    "check_allow_model_requests",
    "close_shared_pool",
    "infer_model",
    "override_allow_model_requests",
]

ALLOW_MODEL_REQUESTS = True
"""Whether requests to real models are allowed, in the whole process. `TestModel` and `FunctionModel` make none."""


def check_allow_model_requests() -> None:
    """Refuse a request while `ALLOW_MODEL_REQUESTS` is False. Models call it before they send one.

    Raises:
        RuntimeError: Requests are not allowed.
    """
    if not ALLOW_MODEL_REQUESTS:
        raise RuntimeError(
            "requests to models are not allowed, because pellucid.models.ALLOW_MODEL_REQUESTS is False; "
            "use a TestModel or a FunctionModel: with agent.override(model=TestModel()): …"
        )


@contextmanager
def override_allow_model_requests(allow_model_requests: bool) -> Iterator[None]:
    """Set `ALLOW_MODEL_REQUESTS` within a block.

    Args:
        allow_model_requests: Its value within the block.
    """
    global ALLOW_MODEL_REQUESTS
    value, ALLOW_MODEL_REQUESTS = ALLOW_MODEL_REQUESTS, allow_model_requests
    try:
        yield
    finally:
        ALLOW_MODEL_REQUESTS = value
