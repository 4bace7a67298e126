"""Messages as the items of a request's `input`.

What may go back at all, `history` says. What this wire demands on top of it:

* A reasoning item goes back as the whole it was: its id, all its summaries, its raw text and its encrypted content in
  one item, unchanged, directly before what it led to.
* A reasoning item and what follows it stay together. Without a follower it does not go; where it cannot go (cut off,
  or sealed nowhere and kept nowhere), what follows it goes without its id, by which the provider would look for it.
  The provider's own tools cannot go without their id, and so not at all. A message that was cut off is not the one
  that its id stands for, and goes without.
* Where nothing is kept at the provider (`stored`), a reasoning item without encrypted content means nothing there.
  Servers whose reasoning is there for all to read take it as its text: `replay_field` says where.
* Ids are left out altogether on request (`openai_send_reasoning_ids`), for histories that somebody has edited.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...parts import (
    Audio,
    BuiltinToolCallPart,
    CompactionPart,
    File,
    Image,
    ModelMessage,
    ModelRequest,
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
from .. import history
from ..media import data_url, input_audio, unsupported, url_of
from ..profile import Profile
from .builtin import SENT_AS_NULL

Item = dict[str, Any]

_FINISHED = ("completed", "failed", None)
"""The status with which a provider's own tool may go back."""


def history_items(messages: list[ModelMessage], row: Profile, target: Origin, *, ids: bool, stored: bool) -> list[Item]:
    """The whole `input`. Raises `RequestError` for what this wire cannot carry."""
    items: list[Item] = []
    custom: set[str] = set()
    for message in history.settled(messages):
        if isinstance(message, ModelResponse):
            answer = _Answer(message, row, target, ids=ids, stored=stored, place=len(items)).items()
            custom |= {item["call_id"] for item in answer if item.get("type") == "custom_tool_call"}
            items += answer
        else:
            items += _request(message, row, custom)
    return items


# --- what was asked ----------------------------------------------------------------------------------------------


def _request(message: ModelRequest, row: Profile, custom: set[str]) -> list[Item]:
    out: list[Item] = []
    for part in message.parts:
        match part:
            case SystemPromptPart():
                role = part.role if row.system_role == "developer" else "system"
                out.append({"role": role, "content": part.content})
            case UserPromptPart():
                content = part.content if isinstance(part.content, str) else [_content(c) for c in part.content]
                out.append({"role": "user", "content": content})
            case ToolReturnPart():
                out.append(_output(part.tool_call_id, _returned(part), custom))
            case RetryPromptPart() if part.tool_name is not None:
                out.append(_output(part.tool_call_id, part.content, custom))
            case RetryPromptPart():
                out.append({"role": "user", "content": part.content})
    return out


def _output(call_id: str, output: str | list[Item], custom: set[str]) -> Item:
    type_ = "custom_tool_call_output" if call_id in custom else "function_call_output"
    return {"type": type_, "call_id": call_id, "output": output}


def _returned(part: ToolReturnPart) -> str | list[Item]:
    """Text; or a list, if the function returned pictures or files."""
    content = part.content
    if isinstance(content, list) and content and all(isinstance(entry, _CONTENTS) for entry in content):
        return [_content(entry) for entry in content]
    return part.content_as_text()


_CONTENTS = (Text, Image, Audio, Video, File)


def _content(content: UserContent) -> Item:
    match content:
        case Text():
            return {"type": "input_text", "text": content.text}
        case Image() if content.url or content.data or content.file_id:
            image: Item = {"type": "input_image", "detail": content.detail or "auto"}
            if content.file_id:
                return image | {"file_id": content.file_id}
            return image | {"image_url": url_of(content, "image/png")}
        case Audio() if content.data:
            return input_audio(content)
        case File() if content.file_id:
            return {"type": "input_file", "file_id": content.file_id}
        case File() if content.data:
            data = data_url(content, "application/octet-stream")
            return {"type": "input_file", "filename": content.filename or "file", "file_data": data}
        case File() if content.url:
            return {"type": "input_file", "file_url": content.url}
        case _:
            raise unsupported(content, "over Responses")


# --- what was answered -------------------------------------------------------------------------------------------


class _Answer:
    """One earlier answer, item by item."""

    def __init__(
        self, response: ModelResponse, row: Profile, target: Origin, *, ids: bool, stored: bool, place: int
    ) -> None:
        self._parts = history.parts_to_send(response, target, row)
        self._row = row
        self._ids = ids
        self._stored = stored
        self._place = place
        thoughts = [part for part in response.parts if isinstance(part, ThinkingPart)]
        self._cut = {part.id for part in thoughts if part.id is not None and not part.complete}
        reasoned = bool(thoughts or response.usage.output_reasoning_tokens)
        self._lost = reasoned and (not thoughts or row.replay == "none")
        """Whether the reasoning that led to what follows does not go."""
        self._items: list[Item] = []
        self._waiting: list[Item] = []
        """Reasoning whose follower has not come yet."""

    def items(self) -> list[Item]:
        told: set[str] = set()
        parts = self._parts
        for place, part in enumerate(parts):
            match part:
                case ThinkingPart():
                    name = part.id or part.item_id
                    if name is None:
                        self._reasoning([part])
                    elif name not in told:
                        told.add(name)
                        # What came late of an item stands elsewhere among the parts.
                        self._reasoning([p for p in parts if isinstance(p, ThinkingPart) and name in (p.id, p.item_id)])
                case TextPart() | RefusalPart():
                    self._message(part, parts[place - 1] if place else None)
                case ToolCallPart():
                    self._follow(_call(part), part.id)
                case BuiltinToolCallPart() | OpaquePart():
                    self._native(part)
                case CompactionPart():
                    self._compaction(part)
                case _:
                    # What a provider's tool returned, and the files it made, are in its own item.
                    pass
        return self._items

    def _reasoning(self, parts: list[ThinkingPart]) -> None:
        id = next((part.id for part in parts if part.id is not None), None)
        signature = next((part.signature for part in reversed(parts) if part.signature is not None), None)
        field = self._row.replay_field
        readable = bool(field) and any(part.content for part in parts)
        kept = self._stored and self._ids and id is not None
        if id in self._cut or not (signature is not None or readable or kept):
            self._lost, self._waiting = True, []
            return
        item: Item = {"type": "reasoning"}
        if id is not None and self._ids:
            item["id"] = id
        elif readable:
            # Such servers demand one, and do not look it up.
            item["id"] = f"rs_{self._place + len(self._items) + len(self._waiting)}"
        item["summary"] = []
        for part in parts:
            if part.content:
                own = "summary" if part.form == "summary" else "content"
                # Somebody else's thought has no form of this wire: it goes where the row says.
                where = own if id is not None or signature is not None or not readable else field
                item.setdefault(where, []).append({"type": _TYPE_OF_FIELD.get(where, where), "text": part.content})
        if signature is not None:
            item["encrypted_content"] = signature
        for part in parts:
            native = (part.provider_details or {}).get("native")
            if isinstance(native, dict):
                item |= native
        self._lost = False
        self._waiting.append(item)

    def _follow(self, item: Item, id: str | None = None) -> None:
        """An item that is not reasoning, after the reasoning that led to it."""
        self._items += self._waiting
        self._waiting = []
        if id is not None and self._ids and not self._lost:
            item["id"] = id
        self._items.append(item)

    def _message(self, part: TextPart | RefusalPart, before: ModelResponsePart | None) -> None:
        if not part.content:
            return
        last: Item = self._items[-1] if self._items and not self._waiting else {}
        if last.get("role") == "assistant" and _one_message(before, part):
            if isinstance(last["content"], str):
                last["content"] += part.content
            else:
                last["content"].append(_said(part))
            return
        details = (part.provider_details or {}) if isinstance(part, TextPart) else {}
        if part.id is None or not part.complete or not self._ids or self._lost:
            self._follow({"role": "assistant", "content": part.content} | details)
        else:
            said: Item = {"type": "message", "role": "assistant", "status": "completed", "content": [_said(part)]}
            self._follow(said | details, part.id)

    def _native(self, part: BuiltinToolCallPart | OpaquePart) -> None:
        native = part.native if isinstance(part, OpaquePart) else (part.provider_details or {}).get("native")
        if not isinstance(native, dict) or not isinstance(native.get("type"), str) or part.id is None:
            return
        if native.get("status") not in _FINISHED or self._lost or not self._ids:
            # It would be looked up by an id that is not to be told.
            self._lost, self._waiting = True, []
            return
        last: Item = self._items[-1] if self._items and not self._waiting else {}
        if native["type"] == "message" and last.get("id") == part.id:
            # A piece of that message which is of no known kind.
            last["content"] += native["content"]
            return
        empty = SENT_AS_NULL.get(native["type"])
        self._follow(({empty: None} if empty else {}) | native)

    def _compaction(self, part: CompactionPart) -> None:
        if part.signature is not None:
            item: Item = {"type": "compaction"} | ({"id": part.id} if part.id else {})
            self._follow(item | {"encrypted_content": part.signature} | (part.provider_details or {}))
        elif part.content:
            self._follow({"role": "assistant", "content": part.content})


_TYPE_OF_FIELD = {"summary": "summary_text", "content": "reasoning_text"}


def _one_message(before: ModelResponsePart | None, part: TextPart | RefusalPart) -> bool:
    """Whether `part` goes on with the message of the part before it."""
    if isinstance(part, RefusalPart):
        return isinstance(before, TextPart | RefusalPart)
    return isinstance(before, TextPart) and before.id == part.id


def _said(part: TextPart | RefusalPart) -> Item:
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.content}
    return {"type": "output_text", "text": part.content, "annotations": part.annotations or []}


def _call(part: ToolCallPart) -> Item:
    details = part.provider_details or {}
    if details.get("type") == "custom_tool_call":
        return {"call_id": part.tool_call_id, "name": part.tool_name, "input": _custom_input(part)} | details
    item: Item = {"type": "function_call", "call_id": part.tool_call_id, "name": part.tool_name}
    return item | {"arguments": part.args_as_json()} | details


def _custom_input(part: ToolCallPart) -> str:
    """The text that a custom tool was called with (see `items`)."""
    try:
        text = part.args_as_dict().get("input")
    except msgspec.DecodeError:
        text = None
    return text if isinstance(text, str) else part.args_as_json()
