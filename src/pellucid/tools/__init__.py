"""What a model may call, as the model is told of it and as it is called: functions, and tools of MCP servers."""

from .calling import Attempts, Rules, Toolbox, call_all
from .context import RunContext
from .deferred import (
    ApprovalRequired,
    CallDeferred,
    Deferral,
    DeferredToolRequests,
    DeferredToolResults,
    Gate,
    ToolApproved,
    ToolDenied,
    deferred_event,
)
from .functions import ModelRetry, Shape, Tool, shape_of
from .protocol import AnyTool, ToolFailed
from .serving import ServerTools, gather, load_tools

__all__ = [
    "AnyTool",
    "ApprovalRequired",
    "Attempts",
    "CallDeferred",
    "Deferral",
    "DeferredToolRequests",
    "DeferredToolResults",
    "Gate",
    "ModelRetry",
    "Rules",
    "RunContext",
    "ServerTools",
    "Shape",
    "Tool",
    "ToolApproved",
    "ToolDenied",
    "ToolFailed",
    "Toolbox",
    "call_all",
    "deferred_event",
    "gather",
    "load_tools",
    "shape_of",
]
