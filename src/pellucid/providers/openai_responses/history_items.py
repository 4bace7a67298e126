"""Encode messages as the items of a request's `input`.

`history` decides which parts may be sent. This wire has further rules:

* A reasoning item is sent back as a whole: its id, all its summaries, its raw text and its encrypted content in one
  item, unchanged, directly before the item that it led to.
* A reasoning item and the item after it stay together: OpenAI refuses a reasoning item "without its required following
  item", and an item with its id "without its required 'reasoning' item". Which reasoning item an item requires was
  recorded when its response was decoded (`REQUIRED_REASONING`); otherwise it is the one before it in the history. If it
  is not sent (the history was edited, it was cut off, or it has no encrypted content and is not stored at the
  provider), the item is sent without its id, because the provider would use the id to look for the reasoning. Items
  with a `call_id` are identified by that; others of the provider's own tools cannot be sent without their id, so they
  are left out. A message that was cut off differs from the one that its id names, so it is sent without the id.
* Parts that were separated from their response (a client sent them back) have no record. Of such, texts and calls are
  sent with their ids only after their reasoning item.
* If the provider stores no responses (`is_stored`), a reasoning item without encrypted content has no meaning there.
  Servers with readable reasoning take its text; `replay_field` names the field.
* A generated image is looked up by its id, so it is sent only if the provider stores responses.
* Some servers accept nothing between the calls of a turn and their results (`interleaved_calls`): there, all calls
  follow the other items of the turn, and the results come before the other items of the request.
* An item that a client sent in the form of this wire is sent as it is.
* All ids are left out on request (`openai_send_reasoning_ids`), for histories that were edited.
"""

from __future__ import annotations

from typing import Any

import msgspec

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
)
from .. import history
from ..media import data_url, input_audio, unsupported_content, url_of
from ..profile import Profile
from .builtin import input_item
from .item_state import REQUIRED_REASONING

WIRE = "openai_responses"
"""The name of this wire."""

Item = dict[str, Any]

_RETURNABLE_STATUSES = ("completed", "failed", None)
"""The statuses with which a provider's own tool may be sent back."""


def history_items(
    messages: list[ModelMessage],
    profile: Profile,
    target: Origin,
    *,
    with_ids: bool,
    is_stored: bool,
    text_tools: frozenset[str] = frozenset(),
) -> list[Item]:
    """Encode the whole `input`.

    Args:
        messages: The conversation.
        profile: The profile.
        target: The origin to which it is sent.
        with_ids: Whether items have ids.
        is_stored: Whether the provider stores responses.
        text_tools: The names of the tools whose input is text.

    Raises:
        RequestError: The wire cannot carry the conversation.
    """
    runs: list[tuple[bool, list[Item]]] = []
    """The items of consecutive responses, or of consecutive requests; with whether they are of responses."""
    custom_calls: set[str] = set()
    count = 0
    for message in history.repair_calls(messages):
        is_response = isinstance(message, ModelResponse)
        if isinstance(message, ModelResponse):
            items = _ResponseItems(
                message,
                profile,
                target,
                with_ids=with_ids,
                is_stored=is_stored,
                text_tools=text_tools,
                first_index=count,
            ).items()
            custom_calls |= {item["call_id"] for item in items if item.get("type") == "custom_tool_call"}
        else:
            items = _request(message, profile, custom_calls)
        count += len(items)
        if items and runs and runs[-1][0] == is_response:
            runs[-1][1].extend(items)
        elif items:
            runs.append((is_response, items))
    if not profile.interleaved_calls:
        for is_response, items in runs:
            if is_response:
                items.sort(key=lambda item: item.get("type") in _CALL_TYPES)
            else:
                items.sort(key=lambda item: item.get("type") not in _OUTPUT_TYPES)
    sent = [item for _, items in runs for item in items]
    return [_with_accepted_call_id(item) for item in sent] if profile.native_forms else sent


_CALL_TYPES = ("function_call", "custom_tool_call")
_OUTPUT_TYPES = tuple(f"{type_}_output" for type_ in _CALL_TYPES)
_MAX_CALL_ID = 64
"""The most characters that OpenAI accepts in a `call_id`. Other providers' ids may be longer."""


def _with_accepted_call_id(item: Item) -> Item:
    id = item.get("call_id")
    if not isinstance(id, str) or 0 < len(id) <= _MAX_CALL_ID:
        return item
    return item | {"call_id": history.made_call_id(id)}


# --- requests ----------------------------------------------------------------------------------------------------


def _request(message: ModelRequest, profile: Profile, custom_calls: set[str]) -> list[Item]:
    out: list[Item] = []
    for part in message.parts:
        match part:
            case SystemPromptPart():
                role = part.role if profile.system_role == "developer" else "system"
                out.append({"role": role, "content": part.content})
            case UserPromptPart(content=[Text(wire_fields=dict() as fields)]) if (
                WIRE in fields and profile.native_forms
            ):
                out.append(fields[WIRE])
            case UserPromptPart():
                content = part.content if isinstance(part.content, str) else [_content(c) for c in part.content]
                out.append({"role": "user", "content": content})
            case ToolReturnPart():
                out.append(_output(part.tool_call_id, _result_content(part), custom_calls))
    return out


def _output(call_id: str, output: str | list[Item], custom_calls: set[str]) -> Item:
    type_ = "custom_tool_call_output" if call_id in custom_calls else "function_call_output"
    return {"type": type_, "call_id": call_id, "output": output}


def _result_content(part: ToolReturnPart) -> str | list[Item]:
    """Return the result as text; or as a list, if the function returned images or files."""
    if part.contents is not None:
        return [_content(entry) for entry in part.contents]
    return part.content_as_text()


def _content(content: UserContent) -> Item:
    match content:
        case Text():
            return {"type": "input_text", "text": content.text}
        case Image() if content.url or content.data or content.file_id:
            image: Item = {"type": "input_image", "detail": content.detail or "auto"}
            if content.file_id:
                return image | {"file_id": content.file_id}
            return image | {"image_url": url_of(content)}
        case Audio() if content.data:
            return input_audio(content)
        case File() if content.file_id:
            return {"type": "input_file", "file_id": content.file_id}
        case File() if content.data:
            data = data_url(content)
            return {"type": "input_file", "filename": content.filename or "file", "file_data": data}
        case File() if content.url:
            return {"type": "input_file", "file_url": content.url}
        case _:
            raise unsupported_content(content, "over Responses")


# --- responses ---------------------------------------------------------------------------------------------------


class _ResponseItems:
    """Encodes one earlier response, item by item."""

    def __init__(
        self,
        response: ModelResponse,
        profile: Profile,
        target: Origin,
        *,
        with_ids: bool,
        is_stored: bool,
        text_tools: frozenset[str],
        first_index: int,
    ) -> None:
        self._parts = history.parts_to_send(response, target, profile)
        self._profile = profile
        self._with_ids = with_ids
        self._is_stored = is_stored
        self._text_tools = text_tools
        self._first_index = first_index
        self._is_whole = response.origin is not None
        """Whether the parts are those of one response, not pieces that a client sent back."""
        self._cut_off_ids = {
            part.id
            for part in response.parts
            if isinstance(part, ThinkingPart) and part.id is not None and not part.complete
        }
        self._links = _ReasoningLinks(response)
        self._items: list[Item] = []
        self._reasoning: str | None = None
        """The name of the last reasoning item, unless it is not sent."""
        self._pending_reasoning: list[Item] = []
        """Reasoning items that wait for the item after them."""

    def items(self) -> list[Item]:
        """Encode the response."""
        sent_ids: set[str] = set()
        parts = self._parts
        for index, part in enumerate(parts):
            if not isinstance(part, ThinkingPart):
                self._check_next(part)
            match part:
                case ThinkingPart():
                    name = part.id or part.item_id
                    if name is None:
                        self._add_reasoning([part], "")
                    elif name not in sent_ids:
                        sent_ids.add(name)
                        # Late parts of the item are elsewhere in the list.
                        self._add_reasoning(
                            [p for p in parts if isinstance(p, ThinkingPart) and name in (p.id, p.item_id)], name
                        )
                case TextPart() | RefusalPart():
                    self._add_message(part, parts[index - 1] if index else None)
                case ToolCallPart():
                    self._add_call(part)
                case BuiltinToolCallPart() | OpaquePart():
                    self._add_native(part)
                case CompactionPart():
                    self._add_compaction(part)
                case _:
                    # The results and files of a provider's tool are in the tool's own item.
                    pass
        return self._items

    def _add_reasoning(self, parts: list[ThinkingPart], name: str) -> None:
        self._check_next(parts[0])
        id = next((part.id for part in parts if part.id is not None), None)
        signature = next((part.signature for part in reversed(parts) if part.signature is not None), None)
        field = self._profile.replay_field
        is_readable = bool(field) and any(part.content for part in parts)
        is_at_provider = self._is_stored and self._with_ids and id is not None
        is_sendable = signature is not None or is_readable or is_at_provider
        if id in self._cut_off_ids or not is_sendable:
            self._withhold_reasoning()
            return
        item: Item = {"type": "reasoning"}
        if id is not None and self._with_ids:
            item["id"] = id
        elif is_readable:
            # Such servers require an id, and do not look it up.
            item["id"] = f"rs_{self._first_index + len(self._items) + len(self._pending_reasoning)}"
        item["summary"] = []
        for part in parts:
            if part.content:
                form_field = "summary" if part.form == "summary" else "content"
                # Reasoning of another origin has no form of this wire: the profile names its field.
                item_field = form_field if id is not None or signature is not None or not is_readable else field
                item.setdefault(item_field, []).append(
                    {"type": _TYPE_OF_FIELD.get(item_field, item_field), "text": part.content}
                )
        if signature is not None:
            item["encrypted_content"] = signature
        for part in parts:
            native = (part.provider_details or {}).get("native")
            if isinstance(native, dict):
                item |= native
        item["summary"] = item["summary"] or []  # OpenAI requires it, also without a summary
        if item.get("content", ()) is None:
            del item["content"]  # xAI refuses null
        self._reasoning = name
        self._pending_reasoning.append(item)

    def _check_next(self, part: ModelResponsePart) -> None:
        """Withhold the reasoning that waits if `part` is not the item that followed it."""
        next_id = self._links.next_ids.get(self._reasoning or "")
        is_item = not isinstance(part, BuiltinToolReturnPart | FilePart)
        if is_item and self._pending_reasoning and next_id not in (None, getattr(part, "id", None)):
            self._withhold_reasoning()

    def _withhold_reasoning(self) -> None:
        """Send neither the reasoning that waits for the next item, nor the ids of the items that require it."""
        self._reasoning, self._pending_reasoning = None, []

    def _may_have_id(self, part: ModelResponsePart) -> bool:
        """Whether a part may be sent with the provider's id."""
        id = getattr(part, "id", None)
        if id is None or not self._with_ids:
            return False
        required = self._links.required.get(id)
        if required is not None:
            return required == self._reasoning
        return self._is_whole or not isinstance(part, TextPart | RefusalPart | ToolCallPart)

    def _add_item(self, item: Item) -> None:
        """Add an item that is not reasoning, after the reasoning that led to it."""
        if self._pending_reasoning and self._is_stored and "id" not in item and not self._profile.replay_field:
            # The provider would look for the item that followed the reasoning, whose id is not sent.
            self._items += [_without_id(each) for each in self._pending_reasoning if "encrypted_content" in each]
            self._withhold_reasoning()
        self._items += self._pending_reasoning
        self._pending_reasoning = []
        self._items.append(item)

    def _add_message(self, part: TextPart | RefusalPart, previous: ModelResponsePart | None) -> None:
        if not part.content:
            return
        last: Item = self._items[-1] if self._items and not self._pending_reasoning else {}
        if last.get("role") == "assistant" and _continues_message(previous, part):
            if isinstance(last["content"], str):
                last["content"] += part.content
            else:
                last["content"].append(_content_part(part))
            return
        details = (part.provider_details or {}) if isinstance(part, TextPart) else {}
        if part.complete and self._may_have_id(part):
            message: Item = {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [_content_part(part)],
            }
            self._add_item(message | details | {"id": part.id})
        else:
            self._add_item({"role": "assistant", "content": part.content} | details)

    def _add_call(self, part: ToolCallPart) -> None:
        item = _call(part, part.tool_name in self._text_tools)
        self._add_item(item | ({"id": part.id} if self._may_have_id(part) else {}))

    def _add_native(self, part: BuiltinToolCallPart | OpaquePart) -> None:
        native = part.native if isinstance(part, OpaquePart) else (part.provider_details or {}).get("native")
        if isinstance(part, OpaquePart) and part.wire is not None:
            self._add_item({**part.native})  # the client's own item, which is not looked up here
            return
        if not isinstance(native, dict) or not isinstance(native.get("type"), str) or part.id is None:
            return
        is_returnable = native.get("status") in _RETURNABLE_STATUSES
        if is_returnable and "call_id" in native and not self._may_have_id(part):
            self._add_item(_without_id(input_item(native)))
            return
        is_image = native["type"] == "image_generation_call"
        if not is_returnable or not self._may_have_id(part) or (is_image and not self._is_stored):
            # The provider would look it up by its id, and not find it or its reasoning.
            self._withhold_reasoning()
            return
        last: Item = self._items[-1] if self._items and not self._pending_reasoning else {}
        if native["type"] == "message" and last.get("id") == part.id:
            # A content part of unknown type, of the same message.
            last["content"] += native["content"]
            return
        self._add_item(input_item(native))

    def _add_compaction(self, part: CompactionPart) -> None:
        if part.signature is not None:
            item = {"type": "compaction"} | input_item(part.provider_details or {})
            id: Item = {"id": part.id} if self._may_have_id(part) else {}
            self._add_item(item | id | {"encrypted_content": part.signature})
        elif part.content:
            self._add_item({"role": "assistant", "content": part.content})


def _without_id(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != "id"}


class _ReasoningLinks:
    """Which items of a response and which of its reasoning items belong together.

    Attributes:
        required: The name of the reasoning item that each item requires, by the item's id.
        next_ids: The id of the item after each reasoning item, by its name.
    """

    def __init__(self, response: ModelResponse) -> None:
        self.required: dict[str, str] = {}
        self.next_ids: dict[str, str] = {}
        names: set[str] = set()
        name: str | None = None
        waits = False
        """Whether no item came after the last reasoning item yet."""
        for part in response.parts:
            id = getattr(part, "id", None)
            if isinstance(part, ThinkingPart):
                own_name = part.id or part.item_id or ""
                if not own_name or own_name not in names:  # a late part of an earlier item changes nothing
                    names.add(own_name)
                    name, waits = own_name, True
            elif id is not None and name is not None:
                self.required.setdefault(id, name)
                if waits and name:
                    self.next_ids[name] = id
                waits = False
            else:
                waits = False
        recorded = (response.provider_details or {}).get(REQUIRED_REASONING)
        if isinstance(recorded, dict):
            self.required |= recorded
            self.next_ids |= {name: id for id, name in reversed(recorded.items())}


_TYPE_OF_FIELD = {"summary": "summary_text", "content": "reasoning_text"}


def _continues_message(previous: ModelResponsePart | None, part: TextPart | RefusalPart) -> bool:
    """Whether `part` belongs to the message of the part before it."""
    if isinstance(part, RefusalPart):
        return isinstance(previous, TextPart | RefusalPart)
    return isinstance(previous, TextPart) and previous.id == part.id


def _content_part(part: TextPart | RefusalPart) -> Item:
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.content}
    return {"type": "output_text", "text": part.content, "annotations": part.annotations or []}


def _call(part: ToolCallPart, takes_text: bool) -> Item:
    details = part.provider_details or {}
    if takes_text or details.get("type") == "custom_tool_call":
        item = {"type": "custom_tool_call", "call_id": part.tool_call_id, "name": part.tool_name}
        return item | {"input": _custom_input(part)} | details
    item = {"type": "function_call", "call_id": part.tool_call_id, "name": part.tool_name}
    return item | {"arguments": part.args_as_json()} | details


def _custom_input(part: ToolCallPart) -> str:
    """Return the text with which a custom tool was called (see `decode`)."""
    try:
        text = part.args_as_dict().get("input")
    except msgspec.DecodeError:
        text = None
    return text if isinstance(text, str) else part.args_as_json()
