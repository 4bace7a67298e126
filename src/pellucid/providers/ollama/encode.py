"""Encode a call as the body of an Ollama chat request.

Sampling settings are in `options`. `stream` is always sent, because Ollama streams by default.
"""

from __future__ import annotations

from ...parts import (
    Image,
    Text,
    ToolCallPart,
    UserContent,
    UserPromptPart,
)
from ...settings import ModelCall, OutputFormat, nearest_effort
from .. import history
from ..chat_request import AssistantMessage, ChatMessages, ChatRequest
from ..effort import is_thinking_off
from ..media import split_data_url, unsupported_content
from ..profile import Profile
from ..setting_fields import Body, SettingFields
from ..tool_schema import arguments_object, function_tool, offered_tools

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
"""Settings that are sent unchanged, and their paths in the body."""


def _write_thinking(fields: SettingFields, profile: Profile) -> None:
    """Write `think`: a boolean, or a level for models that have levels."""
    if profile.thinking == "none" or "thinking" not in fields.settings:
        return
    fields.set_thinking_paths("think")
    level = fields.settings["thinking"]
    if isinstance(level, bool) or is_thinking_off(fields.settings):
        fields.put("thinking", "think", not is_thinking_off(fields.settings))
    else:
        fields.put("thinking", "think", nearest_effort(level, profile.efforts) or True)


def _tools(call: ModelCall) -> Body:
    """Return the tools. The wire has no tool choice: the model may call the tools that are offered."""
    tools = offered_tools(call) if call.tool_choice.mode != "none" else ()
    return {"tools": [function_tool(tool, "description", "parameters") for tool in tools]} if tools else {}


def _output(output: OutputFormat) -> Body:
    if output.kind == "text":
        return {}
    return {"format": output.schema if output.kind == "json_schema" and output.schema is not None else "json"}


# --- messages ----------------------------------------------------------------------------------------------------


def _tool_result(call_id: str, name: str, content: str) -> Body:
    id_field = {"tool_call_id": call_id} if call_id else {}
    return {"role": "tool", "tool_name": name, **id_field, "content": content}


def _user(part: UserPromptPart) -> Body:
    """Encode a user message as one text and a list of images."""
    if isinstance(part.content, str):
        return {"role": "user", "content": part.content}
    texts = [content.text for content in part.content if isinstance(content, Text)]
    images = [_image(content) for content in part.content if not isinstance(content, Text)]
    return {"role": "user", "content": "\n\n".join(texts)} | ({"images": images} if images else {})


def _image(content: UserContent) -> str:
    """Return the base64 data of an image, the only form that this wire has."""
    if isinstance(content, Image):
        if content.data:
            return content.data
        data_url = split_data_url(content.url)
        if data_url is not None and data_url[1]:
            return data_url[2]
    raise unsupported_content(content, "to Ollama, which takes text, and images as base64 data")


def _answer(answer: AssistantMessage) -> Body:
    reasoning = history.reasoning_text(answer.parts)
    if not (answer.calls or answer.text or reasoning):
        return {}
    body: Body = {"content": answer.text}
    if reasoning:
        body[answer.profile.replay_field] = reasoning
    return body | ({"tool_calls": answer.calls} if answer.calls else {})


def _call(part: ToolCallPart) -> Body:
    id_field = {"id": part.tool_call_id} if part.tool_call_id else {}
    return {**id_field, "function": {"name": part.tool_name, "arguments": arguments_object(part.args)}}


_MESSAGES = ChatMessages(user=_user, answer=_answer, tool_call=_call, tool_result=_tool_result)
_REQUEST = ChatRequest(
    settings=lambda profile: _PATHS,
    thinking=_write_thinking,
    messages=_MESSAGES.write,
    tools=_tools,
    output=_output,
    stream=lambda stream, profile: {"stream": stream},
)
encode, setting_fields = _REQUEST.encode, _REQUEST.setting_fields
