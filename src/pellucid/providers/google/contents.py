"""Encode the history as `contents`: messages of the user and of the model, each a list of parts.

* Each part of the model is returned as it came, with its own signature. Parts are not merged, reordered or left out,
  except parts that were made from metadata (searches) and parts that Google rejects or bills twice (its own media
  processing, images of reasoning).
* In the current turn, which begins with the last input of the user, the first call of each step must have a signature.
  If it has none (another model made it, or a client lost it), the profile's placeholder is sent.
* Results of functions are sent in one content directly after the calls, in the order of the calls: calls without an id
  are matched by their order alone. Results are not mixed with text of the user, because Gemini would read that text as
  the model's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...parts import (
    DEFAULT_MEDIA_TYPES,
    Audio,
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    File,
    FilePart,
    Image,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    Video,
)
from ...settings import ModelCall
from .. import history
from ..media import split_data_url, unsupported
from ..profile import Profile
from ..setting_fields import Body
from ..tool_schema import arguments_object
from .decode import TOOL_NAMES, UNNAMED_TOOL
from .grounding import METADATA_ID_PREFIX

_MEDIA = Image | Audio | Video | File
_TOOL_TYPES = {ours: theirs for theirs, ours in TOOL_NAMES.items()}


def system_texts(call: ModelCall) -> list[str]:
    """Return all instructions and system prompts, each once: this wire has one field for them."""
    texts: dict[str, None] = {}
    for message in call.messages:
        if isinstance(message, ModelRequest):
            if message.instructions:
                texts[message.instructions] = None
            texts |= {part.content: None for part in message.parts if isinstance(part, SystemPromptPart)}
    return list(texts)


def encode_contents(call: ModelCall, profile: Profile, target: Origin) -> list[Body]:
    """Encode the messages. There is at least one, and the first is the user's, as Google requires."""
    messages = history.repair_calls(call.messages)
    encoder = _ContentsEncoder(profile, target, _last_user_index(messages))
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            encoder.add_response(index, message)
        else:
            encoder.add_request(message)
    result = encoder.contents
    if not result or result[0]["role"] == "model":
        result.insert(0, {"role": "user", "parts": [{"text": ""}]})
    return result


def _last_user_index(messages: list[ModelMessage]) -> int:
    """Return the index of the last message with user input, where the current turn begins; -1 if there is none."""
    indexes = (
        index
        for index, message in enumerate(messages)
        if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts)
    )
    return max(indexes, default=-1)


class _ContentsEncoder:
    """Encodes messages, one after the other, into contents."""

    def __init__(self, profile: Profile, target: Origin, turn_start: int) -> None:
        self.contents: list[Body] = []
        self._profile = profile
        self._target = target
        self._turn_start = turn_start
        self._calls_by_id: dict[str, tuple[int, ToolCallPart]] = {}
        """Calls so far with their position in their step, by call id."""

    # --- the model -------------------------------------------------------------------------------------------

    def add_response(self, index: int, response: ModelResponse) -> None:
        parts = history.parts_to_send(response, self._target, self._profile)
        calls = [part for part in parts if isinstance(part, ToolCallPart)]
        placeholder = (
            history.placeholder_reasoning(self._profile, calls=bool(calls)) if index > self._turn_start else None
        )
        self._calls_by_id |= {part.tool_call_id: (call_index, part) for call_index, part in enumerate(calls)}
        sent_parts: list[Body] = []
        for part in parts:
            body = _model_part(part)
            if body is None:
                continue
            signature = signature_of(part)
            if isinstance(part, ToolCallPart):
                signature = signature or placeholder
                placeholder = None  # only the first of parallel calls has one
            if signature and not isinstance(part, OpaquePart):
                body["thoughtSignature"] = signature
            sent_parts.append(body)
        if sent_parts:
            self.contents.append({"role": "model", "parts": sent_parts})

    # --- the user --------------------------------------------------------------------------------------------

    def add_request(self, request: ModelRequest) -> None:
        results: list[tuple[int, Body]] = []
        user_parts: list[Body] = []
        for part in request.parts:
            match part:
                case ToolReturnPart():
                    results.append(self._function_response(part))
                case UserPromptPart():
                    user_parts += (
                        [{"text": part.content}] if isinstance(part.content, str) else map(_content_part, part.content)
                    )
                case SystemPromptPart():
                    pass
        if results:
            self._append_results([body for _, body in sorted(results, key=lambda entry: entry[0])])
        if user_parts:
            self.contents.append({"role": "user", "parts": user_parts})

    def _append_results(self, results: list[Body]) -> None:
        """Add the results of one step to one content, even if they came in several messages."""
        last = self.contents[-1] if self.contents else None
        if last is not None and last["role"] == "user" and all("functionResponse" in part for part in last["parts"]):
            last["parts"] += results
        else:
            self.contents.append({"role": "user", "parts": results})

    def _function_response(self, part: ToolReturnPart) -> tuple[int, Body]:
        call_index, call = self._calls_by_id.get(part.tool_call_id, (len(self._calls_by_id), None))
        name = call.tool_name if call is not None else part.tool_name
        body: Body = {"name": name} | _id_field(part)
        content, media = _function_result(part.content)
        if part.outcome != "success":
            content = {"error": content}
        elif not isinstance(content, dict):
            content = {"output": content}
        body |= {"response": content} | ({"parts": media} if media else {})
        return call_index, {"functionResponse": body}


def signature_of(part: ModelResponsePart) -> str | None:
    """Return the signature of a part: from its field, else from its details."""
    signature: str | None = getattr(part, "signature", None)
    return signature or (getattr(part, "provider_details", None) or {}).get("thought_signature")


# --- parts of the model ------------------------------------------------------------------------------------------


def _model_part(part: ModelResponsePart) -> Body | None:
    """Return the part as it came, without its signature; None if it is not returned."""
    match part:
        case ThinkingPart() if part.content or part.signature:
            return {"text": part.content, "thought": True}
        case TextPart() if part.content or part.signature:
            return {"text": part.content}
        case RefusalPart() | CompactionPart() if part.content:
            return {"text": part.content}
        case ToolCallPart():
            call: Body = {"name": part.tool_name, "args": arguments_object(part.args)}
            return {"functionCall": call | _id_field(part)}
        case FilePart() if not part.thought:
            return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
        case BuiltinToolCallPart() | BuiltinToolReturnPart() if _came_as_part(part):
            return _builtin_tool_part(part)
        case OpaquePart() if part.type != "thought_signature" and isinstance(part.native, dict):
            return dict(part.native)
    return None


def _id_field(part: ToolCallPart | ToolReturnPart) -> Body:
    """Return the call's id: Google's if it sent one, else Pellucid's, which Google accepts, too."""
    return {"id": part.tool_call_id} if part.tool_call_id else {}


def _came_as_part(part: BuiltinToolCallPart | BuiltinToolReturnPart) -> bool:
    """Whether the part came from Google as a part. `history.parts_to_send` clears the name of other providers."""
    is_native_part = part.provider_name is not None and not part.tool_call_id.startswith(METADATA_ID_PREFIX)
    return is_native_part and part.tool_name != UNNAMED_TOOL


def _builtin_tool_part(part: BuiltinToolCallPart | BuiltinToolReturnPart) -> Body:
    if part.tool_name == "code_execution":
        if isinstance(part, BuiltinToolCallPart):
            return {"executableCode": part.args}
        return {"codeExecutionResult": part.content}
    tool: Body = {"toolType": _TOOL_TYPES.get(part.tool_name, part.tool_name.upper())}
    if part.tool_call_id:
        tool["id"] = part.tool_call_id
    if isinstance(part, BuiltinToolCallPart):
        return {"toolCall": tool | ({"args": part.args} if part.args is not None else {})}
    return {"toolResponse": tool | ({"response": part.content} if part.content is not None else {})}


# --- user input and function results -----------------------------------------------------------------------------


def _function_result(content: Any) -> tuple[Any, list[Body]]:
    """Return a function's result as JSON, and its media, which this wire carries outside the JSON."""
    entries = content if isinstance(content, list) else [content]
    if not any(isinstance(entry, UserContent) for entry in entries):
        return msgspec.to_builtins(content), []
    texts = [entry.text if isinstance(entry, Text) else entry for entry in entries if not isinstance(entry, _MEDIA)]
    texts = [msgspec.to_builtins(text) for text in texts]
    media = [_content_part(entry) for entry in entries if isinstance(entry, _MEDIA)]
    return texts[0] if len(texts) == 1 else texts, media


def _content_part(content: UserContent) -> Body:
    if isinstance(content, Text):
        return {"text": content.text}
    if content.data:
        return _inline_data(content.media_type or DEFAULT_MEDIA_TYPES[content.kind], content.data)
    url = content.url or getattr(content, "file_id", None)
    if not url:
        raise unsupported(f"a {content.kind} needs data, a URL or the URI of an uploaded file to be sent to Gemini")
    data_url = split_data_url(url)
    if data_url is not None:
        media_type, is_base64, data = data_url
        if not is_base64:
            raise unsupported(
                f"the data URL of a {content.kind} must be base64 (data:image/png;base64,…) to be sent to Gemini"
            )
        return _inline_data(media_type or content.media_type or DEFAULT_MEDIA_TYPES[content.kind], data)
    return {"fileData": {"fileUri": url} | ({"mimeType": content.media_type} if content.media_type else {})}


def _inline_data(media_type: str, data: str) -> Body:
    return {"inlineData": {"mimeType": media_type, "data": data}}
