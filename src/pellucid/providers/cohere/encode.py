"""A call as the body of a Cohere chat request (version 2)."""

from __future__ import annotations

from ...parts import (
    Image,
    ModelRequest,
    ModelResponse,
    OpaquePart,
    Origin,
    RefusalPart,
    RetryPromptPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from ...settings import ModelCall, OutputFormat
from .. import history
from ..effort import thinking_off
from ..functions import as_function, offered
from ..media import unsupported, url_of
from ..profiles import Profile
from ..setting_fields import Body, SettingFields, Settings
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


def encode(call: ModelCall, row: Profile, target: Origin) -> Body:
    """The request's JSON body. Raises `RequestError` for what this wire cannot carry."""
    body: Body = {"model": call.model, "messages": _messages(call, row, target)}
    if call.stream:
        body["stream"] = True
    _write_settings(SettingFields(call.settings, body), row, _tools(call) | _output(call.output))
    return body


def setting_fields(settings: Settings, row: Profile) -> SettingFields:
    """The fields of the body that come from settings."""
    fields = SettingFields(settings)
    _write_settings(fields, row, {})
    return fields


def _write_settings(fields: SettingFields, row: Profile, beside: Body) -> None:
    """`beside`: fields that come from elsewhere."""
    fields.put_all(_PATHS)
    fields.body |= beside
    _write_thinking(fields, row)
    fields.put_all(row.own, skip_none=True)
    fields.put_extra_body()


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


def _messages(call: ModelCall, row: Profile, target: Origin) -> list[Body]:
    messages: list[Body] = []
    for message in history.settled(call.messages):
        if isinstance(message, ModelResponse):
            said = _assistant(message, row, target)
            messages += [said] if said is not None else []
        else:
            messages += _request(message)
    return messages


def _request(message: ModelRequest) -> list[Body]:
    out: list[Body] = []
    if message.instructions:
        out.append({"role": "system", "content": message.instructions})
    for part in history.in_words(message.parts):
        match part:
            case SystemPromptPart():
                out.append({"role": "system", "content": part.content})
            case UserPromptPart():
                content = part.content if isinstance(part.content, str) else [_content(c) for c in part.content]
                out.append({"role": "user", "content": content})
            case ToolReturnPart():
                out.append(_returned(part.tool_call_id, part.content_as_text()))
            case RetryPromptPart() if part.tool_name is not None:
                out.append(_returned(part.tool_call_id, part.content))
            case RetryPromptPart():
                out.append({"role": "user", "content": part.content})
    return out


def _returned(call_id: str, content: str) -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


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


def _assistant(response: ModelResponse, row: Profile, target: Origin) -> Body | None:
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
