"""Agents: a model with instructions, tools and an output type, run to the end or step by step."""

from ..tools import RunUsage
from .agent import Agent, EventStream
from .agent_run import AgentRun, StreamedRunResult, capture_run_messages
from .nodes import CallToolsNode, End, ModelRequestNode, UserPromptNode
from .output import NativeOutput, PromptedOutput, StructuredDict, TextOutput, ToolOutput
from .results import (
    AgentRunResult,
    AgentRunResultEvent,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UsageLimits,
)
from .run_input import RunInput, ServableAgent, StateDeps

__all__ = [
    "Agent",
    "AgentRun",
    "AgentRunResult",
    "AgentRunResultEvent",
    "CallToolsNode",
    "End",
    "EventStream",
    "ModelRequestNode",
    "NativeOutput",
    "PromptedOutput",
    "RunInput",
    "RunUsage",
    "ServableAgent",
    "StateDeps",
    "StreamedRunResult",
    "StructuredDict",
    "TextOutput",
    "ToolOutput",
    "UnexpectedModelBehavior",
    "UsageLimitExceeded",
    "UsageLimits",
    "UserPromptNode",
    "capture_run_messages",
]
