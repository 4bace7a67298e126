"""Encode a call as the body of a Cohere chat request (version 2)."""

from __future__ import annotations

from ...parts import (
    Image,
    RefusalPart,
    Text,
    TextPart,
    ThinkingPart,
    UserContent,
)
from ...settings import ModelCall, OutputFormat
from ..chat_request import AssistantMessage, ChatMessages, ChatRequest, user_message
from ..effort import is_thinking_off
from ..media import unsupported_content, url_of
from ..profile import Profile
from ..setting_fields import Body, SettingFields
from ..tool_schema import function_tool, offered_tools
from .decode import TOOL_PLAN

_PATHS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "p",
    "top_k": "k",
    "seed": "seed",
    "stop_sequences": "stop_sequences",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logprobs": "logprobs",
}
"""Settings that are sent unchanged, and their paths in the body."""


def _write_thinking(fields: SettingFields, profile: Profile) -> None:
    """Write the thinking field. Models that can think do so by default. Cohere has no levels, but token budgets."""
    settings = fields.settings
    has_budget = "thinking_budget" in settings
    if profile.thinking == "none" or not ("thinking" in settings or has_budget):
        return
    fields.set_thinking_paths("thinking")
    if is_thinking_off(settings):
        fields.put("thinking", "thinking", {"type": "disabled"})
        if has_budget:
            fields.withhold("thinking_budget", "thinking", by=["thinking"])
        return
    thinking: Body = {"type": profile.thinking_on}
    budget = settings.get("thinking_budget", profile.budgets.get(str(settings.get("thinking"))))
    if budget is not None and profile.budget_field:
        thinking[profile.budget_field] = budget
    if "thinking" in settings and has_budget:
        fields.withhold("thinking", "thinking", by=["thinking_budget"])
        if profile.budgets.get(str(settings["thinking"])) == budget:
            fields.add_suppressors("thinking_budget", ["thinking"])
    fields.put("thinking_budget" if has_budget else "thinking", "thinking", thinking)


def _tools(call: ModelCall) -> Body:
    """Return the tools. The wire cannot name a function to call, so only the named functions are offered."""
    tools, mode = offered_tools(call), call.tool_choice.mode
    if not tools:
        return {}
    body: Body = {"tools": [function_tool(tool, "description", "parameters") for tool in tools]}
    if all(tool.strict for tool in tools):
        body["strict_tools"] = True
    return body if mode == "auto" else body | {"tool_choice": "NONE" if mode == "none" else "REQUIRED"}


def _output(output: OutputFormat) -> Body:
    if output.kind == "text":
        return {}
    schema = {"json_schema": output.schema} if output.kind == "json_schema" and output.schema is not None else {}
    return {"response_format": {"type": "json_object"} | schema}


# --- messages ----------------------------------------------------------------------------------------------------


def _content(content: UserContent) -> Body:
    match content:
        case Text():
            return {"type": "text", "text": content.text}
        case Image() if content.url or content.data:
            return {"type": "image_url", "image_url": {"url": url_of(content), **_detail(content)}}
        case _:
            raise unsupported_content(content, "to Cohere, which takes text and images")


def _detail(image: Image) -> Body:
    return {"detail": image.detail} if image.detail in ("auto", "low", "high") else {}


def _answer(answer: AssistantMessage) -> Body:
    """Return content, plan, calls and citations of an assistant message, without empty fields."""
    plans: list[str] = []
    citations: list[Body] = []

    def thinking(part: ThinkingPart) -> list[Body]:
        if (part.provider_details or {}).get("subtype") == TOOL_PLAN:
            plans.append(part.content)
            return []
        return [{"type": "thinking", "thinking": part.content}] if part.content else []

    def text(part: TextPart | RefusalPart) -> list[Body]:
        if not part.content:
            return []
        citations.extend((part.provider_details or {}).get("citations", []))
        return [{"type": "text", "text": part.content}]

    fields = {
        "content": answer.chunks(thinking, text),
        "tool_plan": "".join(plans),
        "tool_calls": answer.calls,
        "citations": citations,
    }
    return {name: value for name, value in fields.items() if value}


_MESSAGES = ChatMessages(user=user_message(_content), answer=_answer)
_REQUEST = ChatRequest(
    settings=lambda profile: _PATHS, thinking=_write_thinking, messages=_MESSAGES.write, tools=_tools, output=_output
)
encode, setting_fields = _REQUEST.encode, _REQUEST.setting_fields
