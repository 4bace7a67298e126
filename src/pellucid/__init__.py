"""Pellucid: the reasoning of any language model as one ordered stream of parts.

It exports what users of the library need: `from pellucid import Agent, ThinkingPart, PartDeltaEvent`. Names are
imported on first use, so that a program that needs one of them does not wait for all.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .agent import Agent as Agent
    from .agent import AgentRun as AgentRun
    from .agent import AgentRunResult as AgentRunResult
    from .agent import AgentRunResultEvent as AgentRunResultEvent
    from .agent import CallToolsNode as CallToolsNode
    from .agent import End as End
    from .agent import ModelRequestNode as ModelRequestNode
    from .agent import NativeOutput as NativeOutput
    from .agent import PromptedOutput as PromptedOutput
    from .agent import RunUsage as RunUsage
    from .agent import StateDeps as StateDeps
    from .agent import StreamedRunResult as StreamedRunResult
    from .agent import StructuredDict as StructuredDict
    from .agent import TextOutput as TextOutput
    from .agent import ToolOutput as ToolOutput
    from .agent import UnexpectedModelBehavior as UnexpectedModelBehavior
    from .agent import UsageLimitExceeded as UsageLimitExceeded
    from .agent import UsageLimits as UsageLimits
    from .agent import UserPromptNode as UserPromptNode
    from .agent import capture_run_messages as capture_run_messages
    from .apps import agui as agui
    from .apps import chat as chat
    from .apps import responses as responses
    from .errors import ModelError as ModelError
    from .errors import PellucidError as PellucidError
    from .errors import RequestError as RequestError
    from .events import *  # noqa: F403
    from .parts import *  # noqa: F403
    from .settings import ModelSettings as ModelSettings
    from .settings import ToolDefinition as ToolDefinition
    from .tools import AbstractToolset as AbstractToolset
    from .tools import ApprovalRequired as ApprovalRequired
    from .tools import ApprovalRequiredToolset as ApprovalRequiredToolset
    from .tools import CallDeferred as CallDeferred
    from .tools import CombinedToolset as CombinedToolset
    from .tools import DeferredToolRequests as DeferredToolRequests
    from .tools import DeferredToolResults as DeferredToolResults
    from .tools import ExternalToolset as ExternalToolset
    from .tools import FilteredToolset as FilteredToolset
    from .tools import FunctionToolset as FunctionToolset
    from .tools import ModelRetry as ModelRetry
    from .tools import PrefixedToolset as PrefixedToolset
    from .tools import PreparedToolset as PreparedToolset
    from .tools import RenamedToolset as RenamedToolset
    from .tools import RunContext as RunContext
    from .tools import Tool as Tool
    from .tools import ToolApproved as ToolApproved
    from .tools import ToolDenied as ToolDenied
    from .tools import ToolFailed as ToolFailed
    from .tools import ToolsetTool as ToolsetTool
    from .tools import WrapperToolset as WrapperToolset
    from .tools.mcp import MCPServerStdio as MCPServerStdio
    from .tools.mcp import MCPServerStreamableHTTP as MCPServerStreamableHTTP

_NAMES = {
    "agent": (
        *("Agent", "AgentRun", "AgentRunResult", "AgentRunResultEvent", "CallToolsNode", "End", "ModelRequestNode"),
        *("NativeOutput", "PromptedOutput", "RunUsage", "StateDeps", "StreamedRunResult", "StructuredDict"),
        *("TextOutput", "ToolOutput", "UnexpectedModelBehavior", "UsageLimitExceeded", "UsageLimits"),
        *("UserPromptNode", "capture_run_messages"),
    ),
    "apps": ("agui", "chat", "responses"),
    "errors": ("ModelError", "PellucidError", "RequestError"),
    "settings": ("ModelSettings", "ToolDefinition"),
    "tools": (
        *("AbstractToolset", "ApprovalRequired", "ApprovalRequiredToolset", "CallDeferred", "CombinedToolset"),
        *("DeferredToolRequests", "DeferredToolResults", "ExternalToolset", "FilteredToolset", "FunctionToolset"),
        *("ModelRetry", "PrefixedToolset", "PreparedToolset", "RenamedToolset", "RunContext", "Tool", "ToolApproved"),
        *("ToolDenied", "ToolFailed", "ToolsetTool", "WrapperToolset"),
    ),
    "tools.mcp": ("MCPServerStdio", "MCPServerStreamableHTTP"),
}
_MODULE_OF = {name: module_name for module_name, names in _NAMES.items() for name in names}


def __dir__() -> list[str]:
    return sorted(
        [*_MODULE_OF, *(name for module in ("parts", "events") for name in _public_names(module)), "__version__"]
    )


def _public_names(module_name: str) -> list[str]:
    """Return the public names that a module defines, without those that it imports."""
    module = import_module(f".{module_name}", __name__)
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return [name for name in own if name[0].isupper() or name.startswith("messages_")]


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()  # `from pellucid import *` asks for it
    # All names of `parts` and `events` are exported; of other packages, the names in `_NAMES`.
    for module_name in (_MODULE_OF[name],) if name in _MODULE_OF else ("parts", "events"):
        module = import_module(f".{module_name}", __name__)
        if name[0].isupper() or name in _MODULE_OF or name in ("messages_to_json", "messages_from_json"):
            with suppress(AttributeError):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
