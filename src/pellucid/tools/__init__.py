"""Tools: functions and tools of MCP servers, as they are described to a model and as they are called."""

from .context import RunContext, RunUsage
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
from .execution import ExecutionOptions, FailureCounter, call_tools
from .function_tool import ModelRetry, Tool
from .protocol import AnyTool, ToolFailed
from .server_toolset import ServerToolset, collect_tools, load_tools
from .toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    ExternalToolset,
    FilteredToolset,
    FunctionToolset,
    PrefixedToolset,
    PreparedToolset,
    RenamedToolset,
    ToolsetTool,
    WrapperToolset,
    tools_by_name,
)
from .type_adapter import TypeAdapter, type_adapter

__all__ = [
    "AbstractToolset",
    "AnyTool",
    "ApprovalRequired",
    "ApprovalRequiredToolset",
    "CallDeferred",
    "CombinedToolset",
    "Deferral",
    "Deferrals",
    "DeferredToolRequests",
    "DeferredToolResults",
    "ExecutionOptions",
    "ExternalToolset",
    "FailureCounter",
    "FilteredToolset",
    "FunctionToolset",
    "ModelRetry",
    "PrefixedToolset",
    "PreparedToolset",
    "RenamedToolset",
    "RunContext",
    "RunUsage",
    "ServerToolset",
    "Tool",
    "ToolApproved",
    "ToolDenied",
    "ToolFailed",
    "ToolsetTool",
    "TypeAdapter",
    "WrapperToolset",
    "call_tools",
    "collect_tools",
    "deferred_event",
    "load_tools",
    "tools_by_name",
    "type_adapter",
]
