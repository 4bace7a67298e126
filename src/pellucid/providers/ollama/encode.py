"""A call as the body of an Ollama chat request.

How to sample stands in `options`; `stream` is always said, because Ollama streams unless it is told not to.
"""

from __future__ import annotations

from ...errors import RequestError
from ...parts import (
    Image,
    ModelRequest,
    ModelResponse,
    Origin,
    RefusalPart,
    RetryPromptPart,
    SystemPromptPart,
    Text,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from ...settings import ModelCall, OutputFormat
from .. import history
from ..effort import nearest_effort, thinking_off
from ..functions import arguments_object, as_function, offered
from ..profiles import Profile
from ..setting_fields import Body, SettingFields, Settings

_PATHS = {
    "max_tokens": "options.num_predict",
    "temperature": "options.temperature",
    "top_p": "options.top_p",
    "top_k": "options.top_k",
    "seed": "options.seed",
    "stop_sequences": "options.stop",
    "presence_penalty": "options.presence_penalty",
    "frequency_penalty": "options.frequency_penalty",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
}
"""Settings that are sent as they are."""


def encode(call: ModelCall, row: Profile, target: Origin) -> Body:
    """The request's JSON body. Raises `RequestError` for what this wire cannot carry."""
    body: Body = {"model": call.model, "messages": _messages(call, row, target), "stream": call.stream}
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
    """`think` is a yes or no; only models that know levels may be asked for one."""
    if row.thinking == "none" or "thinking" not in fields.settings:
        return
    fields.thinking_at("think")
    level = fields.settings["thinking"]
    if isinstance(level, bool) or thinking_off(fields.settings):
        fields.put("thinking", "think", not thinking_off(fields.settings))
    else:
        fields.put("thinking", "think", nearest_effort(level, row.efforts) or True)


def _tools(call: ModelCall) -> Body:
    """There is no tool_choice: whether to call is said by which tools are offered."""
    if call.tools and call.tool_choice.mode == "required":
        raise RequestError(
            "Ollama's own endpoint cannot be told that a tool must be called; let tool_choice be auto",
            kind="unsupported",
            code="unsupported_tool_choice",
            param="tool_choice",
        )
    tools = offered(call) if call.tool_choice.mode != "none" else ()
    return {"tools": [as_function(tool) for tool in tools]} if tools else {}


def _output(output: OutputFormat) -> Body:
    if output.kind == "text":
        return {}
    return {"format": output.schema if output.kind == "json_schema" and output.schema is not None else "json"}


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
                out.append(_user(part))
            case ToolReturnPart():
                out.append(_returned(part.tool_call_id, part.tool_name, part.content_as_text()))
            case RetryPromptPart() if part.tool_name is not None:
                out.append(_returned(part.tool_call_id, part.tool_name, part.content))
            case RetryPromptPart():
                out.append({"role": "user", "content": part.content})
    return out


def _returned(call_id: str, name: str, content: str) -> Body:
    known = {"tool_call_id": call_id} if call_id else {}
    return {"role": "tool", "tool_name": name, **known, "content": content}


def _user(part: UserPromptPart) -> Body:
    """One text, and the images beside it."""
    if isinstance(part.content, str):
        return {"role": "user", "content": part.content}
    texts = [content.text for content in part.content if isinstance(content, Text)]
    images = [_image(content) for content in part.content if not isinstance(content, Text)]
    return {"role": "user", "content": "\n\n".join(texts)} | ({"images": images} if images else {})


def _image(content: object) -> str:
    """The base64 of an image: that is all an image can be here."""
    if isinstance(content, Image):
        if content.data:
            return content.data
        head, comma, data = (content.url or "").partition(";base64,")
        if comma and head.startswith("data:"):
            return data
    kind = getattr(content, "kind", "content")
    raise RequestError(
        f"a {kind} in this form cannot be sent to Ollama, which takes text, and images as base64 data",
        kind="unsupported",
        code="unsupported_content",
    )


def _assistant(response: ModelResponse, row: Profile, target: Origin) -> Body | None:
    """One earlier answer; None when nothing of it may be said."""
    parts = history.parts_to_send(response, target, row)
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    text = "".join(part.content for part in parts if isinstance(part, TextPart | RefusalPart))
    thought = history.reasoning_text(parts)
    if not (calls or text or thought):
        return None
    body: Body = {"role": "assistant", "content": text}
    if thought:
        body[row.replay_field] = thought
    if calls:
        body["tool_calls"] = [_call(call) for call in calls]
    return body


def _call(call: ToolCallPart) -> Body:
    known = {"id": call.tool_call_id} if call.tool_call_id else {}
    return {**known, "function": {"name": call.tool_name, "arguments": arguments_object(call)}}
