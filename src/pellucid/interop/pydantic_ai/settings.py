"""Convert settings, tools and output formats between Pydantic AI and Pellucid.

Most settings have the same name, because ours follow Pydantic AI. Settings of a provider (`anthropic_…`, `openai_…`)
are not changed.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.settings import ToolOrOutput
from pydantic_ai.tools import ToolDefinition as TheirTool

from ...settings import SETTINGS, ModelSettings, OutputFormat, ToolChoice, ToolDefinition

_APPLIED_BY_PYDANTIC_AI = frozenset(
    # Settings that Pydantic AI applies itself, or that are elsewhere in the call.
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
    name for name, row in SETTINGS.items() if row.is_client_settable and name in TheirSettings.__annotations__
) - {"service_tier"}
"""The settings of a caller that an agent passes to its model. The names of service tiers differ between providers."""


def settings_from(settings: TheirSettings | None, parameters: ModelRequestParameters) -> ModelSettings:
    converted: dict[str, Any] = {
        name: value for name, value in (settings or {}).items() if name not in _APPLIED_BY_PYDANTIC_AI
    }
    if "timeout" in converted and not isinstance(converted["timeout"], int | float):
        del converted["timeout"]  # An httpx.Timeout has times for the steps of httpx, which is not used here.
    if parameters.thinking is not None:
        converted["thinking"] = parameters.thinking
    return cast("ModelSettings", converted)


def settings_to(settings: ModelSettings) -> TheirSettings:
    shared = {name: value for name, value in settings.items() if name in _SHARED}
    if shared.get("thinking") == "none":
        shared["thinking"] = False
    return cast("TheirSettings", shared)


def tools_from(parameters: ModelRequestParameters) -> tuple[ToolDefinition, ...]:
    return tuple(
        ToolDefinition(tool.name, tool.parameters_json_schema, tool.description, tool.strict)
        for tool in parameters.declared_tool_defs.values()
    )


def tools_to(tools: tuple[ToolDefinition, ...]) -> list[TheirTool]:
    return [
        TheirTool(
            name=tool.name,
            parameters_json_schema=tool.parameters_json_schema or {"type": "object", "properties": {}},
            description=tool.description,
            strict=tool.strict,
        )
        for tool in tools
    ]


def choice_from(settings: TheirSettings | None, parameters: ModelRequestParameters) -> ToolChoice:
    """Return which tools the model may or must call.

    Function tools are the application's. A call of an output tool is the answer.
    """
    choice = (settings or {}).get("tool_choice")
    output_tools = tuple(tool.name for tool in parameters.output_tools)
    declared = set(parameters.declared_tool_defs)
    # If neither text nor an image can be the answer, the model must call a tool.
    if parameters.allow_text_output or parameters.allow_image_output:
        default_choice, allows_text = ToolChoice("auto"), True
    else:
        default_choice, allows_text = ToolChoice("required", is_preference=True), False
    if not declared:
        return ToolChoice()
    if choice is None or choice == "auto":
        return default_choice
    if choice == "none" or choice == []:
        names: tuple[str, ...] = output_tools
    elif choice == "required":
        return ToolChoice("required", tuple(sorted(declared - set(output_tools))))
    elif isinstance(choice, ToolOrOutput):
        names = (*choice.function_tools, *output_tools)
    else:
        return ToolChoice("required", tuple(name for name in choice if name in declared))
    if not names:
        return ToolChoice("none")
    allowed = tuple(name for name in names if name in declared)
    return ToolChoice("auto" if allows_text else "required", allowed, is_preference=True)


def output_from(parameters: ModelRequestParameters) -> OutputFormat:
    schema = parameters.output_object
    if parameters.output_mode != "native" or schema is None:
        return OutputFormat()
    return OutputFormat(
        "json_schema", schema.name or "final_result", schema.json_schema, schema.description, schema.strict
    )
