"""What a model may call: functions of ours, as the model is told of them and as they are called."""

from .context import RunContext
from .functions import ModelRetry, Tool
from .shapes import Shape, shape_of

__all__ = ["ModelRetry", "RunContext", "Shape", "Tool", "shape_of"]
