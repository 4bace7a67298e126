"""How a model is to be used, in the other library's words. Most settings have one name on both sides, as ours follow
Pydantic AI's; a provider's own (`anthropic_…`, `openai_…`) pass as they are.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.settings import ToolOrOutput
from pydantic_ai.tools import ToolDefinition as TheirTool

from ...settings import ModelSettings, OutputFormat, ToolChoice, ToolDefinition

_APPLIED_THERE = frozenset(
    # What Pydantic AI itself does, or what stands elsewhere in the call.
    (
        "request_timeout",
        "first_event_timeout",
        "framing_announcement",
        "max_retries",
        "tool_choice",
        "cache",
        "thinking",
    )
)
_SHARED = frozenset(
    (
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "stop_sequences",
        "parallel_tool_calls",
        "thinking",
    )
)
"""What a caller of an agent may say of the model that the agent uses."""


def settings_from(settings: TheirSettings | None, asked: ModelRequestParameters) -> ModelSettings:
    made: dict[str, Any] = {name: value for name, value in (settings or {}).items() if name not in _APPLIED_THERE}
    if "timeout" in made and not isinstance(made["timeout"], int | float):
        del made["timeout"]  # an httpx.Timeout, which times the steps of a client that is not ours
    if asked.thinking is not None:
        made["thinking"] = asked.thinking
    return cast("ModelSettings", made)


def settings_to(settings: ModelSettings) -> TheirSettings:
    shared = {name: value for name, value in settings.items() if name in _SHARED}
    if shared.get("thinking") == "none":
        shared["thinking"] = False
    return cast("TheirSettings", shared)


def tools_from(asked: ModelRequestParameters) -> tuple[ToolDefinition, ...]:
    return tuple(
        ToolDefinition(tool.name, tool.parameters_json_schema, tool.description, tool.strict)
        for tool in asked.declared_tool_defs.values()
    )


def tools_to(tools: tuple[ToolDefinition, ...]) -> list[TheirTool]:
    return [
        TheirTool(
            name=tool.name,
            parameters_json_schema=tool.parameters or {"type": "object", "properties": {}},
            description=tool.description,
            strict=tool.strict,
        )
        for tool in tools
    ]


def choice_from(settings: TheirSettings | None, asked: ModelRequestParameters) -> ToolChoice:
    """Whether the model may call. A function tool is the user's, an output tool is how an answer is given."""
    wanted = (settings or {}).get("tool_choice")
    output = tuple(tool.name for tool in asked.output_tools)
    declared = set(asked.declared_tool_defs)
    # Where no words will do for an answer, the model has to call something.
    if asked.allow_text_output or asked.allow_image_output:
        mode, free = ToolChoice("auto"), True
    else:
        mode, free = ToolChoice("required"), False
    if not declared:
        return ToolChoice()
    if wanted is None or wanted == "auto":
        return mode
    if wanted == "none" or wanted == []:
        names: tuple[str, ...] = output
    elif wanted == "required":
        return ToolChoice("required", tuple(sorted(declared - set(output))))
    elif isinstance(wanted, ToolOrOutput):
        names = (*wanted.function_tools, *output)
    else:
        return ToolChoice("required", tuple(name for name in wanted if name in declared))
    if not names:
        return ToolChoice("none")
    return ToolChoice("auto" if free else "required", tuple(name for name in names if name in declared))


def output_from(asked: ModelRequestParameters) -> OutputFormat:
    form = asked.output_object
    if asked.output_mode != "native" or form is None:
        return OutputFormat()
    return OutputFormat("json_schema", form.name or "final_result", form.json_schema, form.description, form.strict)
