"""Tools: functions and tools of MCP servers, as they are described to a model and as they are called."""

from .context import RunContext
from .deferred import (
    ApprovalRequired,
    CallDeferred,
    Deferral,
    Deferrals,
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDenied,
    deferred_event,
)
from .execution import ExecutionOptions, FailureCounter, Toolset, call_tools
from .function_tool import ModelRetry, Tool, TypeAdapter, type_adapter
from .protocol import AnyTool, ToolFailed
from .server_toolset import ServerToolset, collect_tools, load_tools

__all__ = [
    "AnyTool",
    "ApprovalRequired",
    "CallDeferred",
    "Deferral",
    "Deferrals",
    "DeferredToolRequests",
    "DeferredToolResults",
    "ExecutionOptions",
    "FailureCounter",
    "ModelRetry",
    "RunContext",
    "ServerToolset",
    "Tool",
    "ToolApproved",
    "ToolDenied",
    "ToolFailed",
    "Toolset",
    "TypeAdapter",
    "call_tools",
    "collect_tools",
    "deferred_event",
    "load_tools",
    "type_adapter",
]
