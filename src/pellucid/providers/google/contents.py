"""The history as `contents`: turns of the user and of the model, each a list of parts.

* Each part of the model goes back as the part it was, with its own signature: none are merged, reordered or left out,
  but for what only looks like a part (searches told in metadata) and what Google refuses or bills twice (its own media
  processing, images of thought).
* In the current turn, from the last words of the user on, the first call of each step must carry a signature. Where it
  has none (another model made it, a client lost it), the row's sentinel stands in.
* What functions returned goes in one content right after the calls, in their order: calls without an id are told
  apart by nothing else. It is not mixed with words of the user, or Gemini takes those for the model's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import RequestError
from ...parts import (
    Audio,
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    File,
    FilePart,
    Image,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
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
    Video,
)
from ...settings import ModelCall
from .. import history
from ..functions import arguments_object
from ..profile import Profile
from .decode import TOOL_NAMES, UNNAMED_TOOL
from .grounding import FROM_METADATA

Body = dict[str, Any]

_TOOL_TYPES = {ours: theirs for theirs, ours in TOOL_NAMES.items()}
_MEDIA_TYPES = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4", "file": "application/octet-stream"}
"""What data is taken for that does not say what it is."""


def system_instruction(call: ModelCall) -> list[str]:
    """The instructions, wherever they stand: this wire has one place for them. Repeated ones are said once."""
    said: dict[str, None] = {}
    for message in call.messages:
        if isinstance(message, ModelRequest):
            if message.instructions:
                said[message.instructions] = None
            said |= {part.content: None for part in message.parts if isinstance(part, SystemPromptPart)}
    return list(said)


def contents(call: ModelCall, row: Profile, target: Origin) -> list[Body]:
    """The messages. There is always one, and the first is the user's: Google refuses anything else."""
    messages = history.settled(call.messages)
    writer = _Writer(row, target, _last_words(messages))
    for at, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            writer.response(at, message)
        else:
            writer.request(message)
    written = writer.contents
    if not written or written[0]["role"] == "model":
        written.insert(0, {"role": "user", "parts": [{"text": ""}]})
    return written


def _last_words(messages: list[ModelMessage]) -> int:
    """The place of the last message in which the user says something: there the current turn begins."""
    spoken = (
        at
        for at, message in enumerate(messages)
        if isinstance(message, ModelRequest) and any(map(_is_spoken, message.parts))
    )
    return max(spoken, default=-1)


def _is_spoken(part: ModelRequestPart) -> bool:
    return isinstance(part, UserPromptPart) or (isinstance(part, RetryPromptPart) and part.tool_name is None)


class _Writer:
    """The contents so far."""

    def __init__(self, row: Profile, target: Origin, turn: int) -> None:
        self.contents: list[Body] = []
        self._row = row
        self._target = target
        self._turn = turn
        self._calls: dict[str, tuple[int, ToolCallPart]] = {}
        """The calls of the last step, by our ids, with their places."""

    # --- the model -------------------------------------------------------------------------------------------

    def response(self, at: int, response: ModelResponse) -> None:
        parts = history.parts_to_send(response, self._target, self._row)
        calls = [part for part in parts if isinstance(part, ToolCallPart)]
        stand_in = history.stand_in(self._row, calls=bool(calls)) if at > self._turn else None
        self._calls |= {part.tool_call_id: (place, part) for place, part in enumerate(calls)}
        sent: list[Body] = []
        for part in parts:
            body = _model_part(part)
            if body is None:
                continue
            signature = signature_of(part)
            if isinstance(part, ToolCallPart):
                signature = signature or stand_in
                stand_in = None  # only the first of parallel calls has one
            if signature and not isinstance(part, OpaquePart):
                body["thoughtSignature"] = signature
            sent.append(body)
        if sent:
            self.contents.append({"role": "model", "parts": sent})

    # --- the user --------------------------------------------------------------------------------------------

    def request(self, request: ModelRequest) -> None:
        returned: list[tuple[int, Body]] = []
        said: list[Body] = []
        for part in request.parts:
            match part:
                case ToolReturnPart() | RetryPromptPart(tool_name=str()):
                    returned.append(self._returned(part))
                case UserPromptPart():
                    said += [{"text": part.content}] if isinstance(part.content, str) else map(_content, part.content)
                case RetryPromptPart():
                    said.append({"text": part.content})
                case SystemPromptPart():
                    pass
        if returned:
            self._append_returns([body for _, body in sorted(returned, key=lambda entry: entry[0])])
        if said:
            self.contents.append({"role": "user", "parts": said})

    def _append_returns(self, returns: list[Body]) -> None:
        """All that one step's calls returned is one content, also if the messages come one by one."""
        last = self.contents[-1] if self.contents else None
        if last is not None and last["role"] == "user" and all("functionResponse" in part for part in last["parts"]):
            last["parts"] += returns
        else:
            self.contents.append({"role": "user", "parts": returns})

    def _returned(self, part: ToolReturnPart | RetryPromptPart) -> tuple[int, Body]:
        place, call = self._calls.get(part.tool_call_id, (len(self._calls), None))
        name = call.tool_name if call is not None else part.tool_name
        body: Body = {"name": name or ""} | _id(part)
        if isinstance(part, RetryPromptPart):
            return place, {"functionResponse": body | {"response": {"error": part.content}}}
        content, media = _result(part.content)
        if part.outcome != "success":
            content = {"error": content}
        elif not isinstance(content, dict):
            content = {"output": content}
        body |= {"response": content} | ({"parts": media} if media else {})
        return place, {"functionResponse": body}


def signature_of(part: ModelResponsePart) -> str | None:
    """The signature that came with this part; where it has no field of its own, it is among the details."""
    own: str | None = getattr(part, "signature", None)
    return own or (getattr(part, "provider_details", None) or {}).get("thought_signature")


# --- parts of the model ------------------------------------------------------------------------------------------


def _model_part(part: ModelResponsePart) -> Body | None:
    """The part as it came, but for its signature; None if it does not go back."""
    match part:
        case ThinkingPart() if part.content or part.signature:
            return {"text": part.content, "thought": True}
        case TextPart() if part.content or part.signature:
            return {"text": part.content}
        case RefusalPart() | CompactionPart() if part.content:
            return {"text": part.content}
        case ToolCallPart():
            call: Body = {"name": part.tool_name, "args": arguments_object(part)}
            return {"functionCall": call | _id(part)}
        case FilePart() if not part.thought:
            return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
        case BuiltinToolCallPart() | BuiltinToolReturnPart() if _was_a_part(part):
            return _own_tool(part)
        case OpaquePart() if part.type != "thought_signature" and isinstance(part.native, dict):
            return dict(part.native)
    return None


def _id(part: ToolCallPart | ToolReturnPart | RetryPromptPart) -> Body:
    """The call's id: Google's own where it gave one, else ours, which it takes as well."""
    return {"id": part.tool_call_id} if part.tool_call_id else {}


def _was_a_part(part: BuiltinToolCallPart | BuiltinToolReturnPart) -> bool:
    """Whether it came as a part, from Google, and may go back. (What another made has lost its maker's name.)"""
    told_apart = part.provider_name is not None and not part.tool_call_id.startswith(FROM_METADATA)
    return told_apart and part.tool_name != UNNAMED_TOOL


def _own_tool(part: BuiltinToolCallPart | BuiltinToolReturnPart) -> Body:
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


# --- what the user and the functions bring -----------------------------------------------------------------------


def _result(content: Any) -> tuple[Any, list[Body]]:
    """What a function returned, as JSON, and apart from it the media that this wire does not put into JSON."""
    entries = content if isinstance(content, list) else [content]
    if not any(isinstance(entry, UserContent) for entry in entries):
        return msgspec.to_builtins(content), []
    texts = [entry.text if isinstance(entry, Text) else entry for entry in entries if not _is_media(entry)]
    texts = [msgspec.to_builtins(text) for text in texts]
    media = [_content(entry) for entry in entries if _is_media(entry)]
    return texts[0] if len(texts) == 1 else texts, media


def _is_media(entry: Any) -> bool:
    return isinstance(entry, Image | Audio | Video | File)


def _content(content: UserContent) -> Body:
    if isinstance(content, Text):
        return {"text": content.text}
    if content.data:
        return _inline(content.media_type or _MEDIA_TYPES[content.kind], content.data)
    url = content.url or getattr(content, "file_id", None)
    if not url:
        raise RequestError(
            f"a {content.kind} needs data, a URL or the URI of an uploaded file to be sent to Gemini",
            kind="unsupported",
            code="unsupported_content",
        )
    if url.startswith("data:"):
        header, _, data = url.removeprefix("data:").partition(",")
        media_type, _, encoding = header.partition(";")
        if not encoding.endswith("base64"):
            raise RequestError(
                f"the data URL of a {content.kind} must be base64 (data:image/png;base64,…) to be sent to Gemini",
                kind="unsupported",
                code="unsupported_content",
            )
        return _inline(media_type or content.media_type or _MEDIA_TYPES[content.kind], data)
    return {"fileData": {"fileUri": url} | ({"mimeType": content.media_type} if content.media_type else {})}


def _inline(media_type: str, data: str) -> Body:
    return {"inlineData": {"mimeType": media_type, "data": data}}
