"""A call as the body of a Cohere chat request (version 2)."""

from __future__ import annotations

from ...parts import (
    Image,
    ModelResponse,
    OpaquePart,
    Origin,
    RefusalPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserContent,
)
from ...settings import ModelCall, OutputFormat
from .. import history
from ..chat_request import ChatMessages, ChatRequest, user_message
from ..effort import thinking_off
from ..functions import as_function, offered
from ..media import unsupported, url_of
from ..profile import Profile
from ..setting_fields import Body, SettingFields
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
"""Settings that are sent as they are."""


def _write_thinking(fields: SettingFields, row: Profile) -> None:
    """Unasked, a model that can think does. Cohere knows no levels: they are budgets of tokens."""
    settings = fields.settings
    budgeted = "thinking_budget" in settings
    if row.thinking == "none" or not ("thinking" in settings or budgeted):
        return
    fields.thinking_at("thinking")
    if thinking_off(settings):
        fields.put("thinking", "thinking", {"type": "disabled"})
        if budgeted:
            fields.withhold("thinking_budget", "thinking", by=["thinking"])
        return
    asked: Body = {"type": row.thinking_on}
    budget = settings.get("thinking_budget", row.budgets.get(str(settings.get("thinking"))))
    if budget is not None and row.budget_field:
        asked[row.budget_field] = budget
    if "thinking" in settings and budgeted:
        fields.withhold("thinking", "thinking", by=["thinking_budget"])
        if row.budgets.get(str(settings["thinking"])) == budget:
            fields.add_silencers("thinking_budget", ["thinking"])
    fields.put("thinking_budget" if budgeted else "thinking", "thinking", asked)


def _tools(call: ModelCall) -> Body:
    """There is no naming of one function: only the named ones are offered."""
    tools, mode = offered(call), call.tool_choice.mode
    if not tools:
        return {}
    body: Body = {"tools": [as_function(tool) for tool in tools]}
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
            return {"type": "image_url", "image_url": {"url": url_of(content, "image/png"), **_detail(content)}}
        case _:
            raise unsupported(content, "to Cohere, which takes text and images")


def _detail(image: Image) -> Body:
    return {"detail": image.detail} if image.detail in ("auto", "low", "high") else {}


def _assistant(response: ModelResponse, row: Profile, target: Origin, call: ModelCall) -> Body | None:
    """One earlier answer: content in the order in which it came, plan and calls; None if nothing may be said."""
    content: list[Body] = []
    plans: list[str] = []
    calls: list[Body] = []
    citations: list[Body] = []
    for part in history.parts_to_send(response, target, row):
        match part:
            case ThinkingPart() if not part.content:
                continue
            case ThinkingPart() if (part.provider_details or {}).get("subtype") == TOOL_PLAN:
                plans.append(part.content)
            case ThinkingPart():
                content.append({"type": "thinking", "thinking": part.content})
            case TextPart() | RefusalPart() if part.content:
                content.append({"type": "text", "text": part.content})
                citations += (getattr(part, "provider_details", None) or {}).get("citations", [])
            case ToolCallPart():
                function = {"name": part.tool_name, "arguments": part.args_as_json()}
                calls.append({"id": part.tool_call_id, "type": "function", "function": function})
            case OpaquePart() if isinstance(part.native, dict) and isinstance(part.native.get("type"), str):
                content.append(part.native)
    if not (content or plans or calls):
        return None
    body: Body = {"role": "assistant"}
    if content:
        body["content"] = content
    if plans:
        body["tool_plan"] = "".join(plans)
    if calls:
        body["tool_calls"] = calls
    if citations:
        body["citations"] = citations
    return body


_MESSAGES = ChatMessages(user=user_message(_content), assistant=_assistant)
_REQUEST = ChatRequest(
    settings=_PATHS, thinking=_write_thinking, messages=_MESSAGES.write, tools=_tools, output=_output
)
encode, setting_fields = _REQUEST.encode, _REQUEST.setting_fields
