"""Converts input items to messages, the form in which models are called.

Items of every dialect are accepted: reasoning may come as raw text, as summaries, as a token that was sealed here
(`SealedPart`, to be opened before a model sees it), or as all of them. What an item refers to (an earlier item by its
id, a call by its `call_id`) is passed in as `ReferenceContext`.

Nothing that a client has in its history is a reason to refuse it. An item or content of an unknown type goes to models
of OpenAI's wire as it is, and to all others as readable text. In a whole history, the result of a call that is not
there is kept as text, too; in an input that continues a stored response, it is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, get_args

import msgspec

from ...errors import RequestError
from ...parts import (
    Audio,
    File,
    Form,
    Image,
    ModelMessage,
    ModelResponsePart,
    OpaquePart,
    RefusalPart,
    SealedPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    Video,
    json_text,
)
from ..message_parts import append_part, joined_if_text, split_file_data
from . import types as t
from .client_tools import INPUT, OPENAI_WIRE, TOOL_ITEMS, function_name, known_form


class KnownCall(NamedTuple):
    """A function that was called with some `call_id`."""

    name: str
    pending_results: int = 1
    """The number of results that are missing: some models give several calls one id."""


class ReferenceContext(NamedTuple):
    """The calls and items that input items may refer to."""

    calls: Mapping[str, KnownCall] = {}
    """The functions that were called earlier in the conversation, by `call_id`."""
    items: Mapping[str, list[ModelMessage]] = {}
    """The messages of stored items, by the item's id."""
    summary_form: Form = "summary"
    """What summaries without a seal are: `raw` if the client gets raw text as summaries."""


def messages_of(
    input: str | list[t.ItemParam], context: ReferenceContext, warnings: list[str] | None = None
) -> list[ModelMessage]:
    """Convert an input.

    Args:
        input: A text, or a list of items.
        context: The calls and items that items may refer to.
        warnings: The input is a whole history, in which a result without its call is used as text: a sentence is added
            for each. None: the input continues stored items, and such a result is an error.

    Raises:
        RequestError: The message names the item and says what would be valid.
    """
    messages: list[ModelMessage] = []
    if isinstance(input, str):
        append_part(messages, UserPromptPart(input))
        return messages
    calls = dict(context.calls)
    for index, item in enumerate(input):
        path = f"input[{index}]"
        match item:
            case t.MessageParam(role="assistant"):
                for part in _assistant_parts(item, path):
                    append_part(messages, part)
            case t.MessageParam(role="user"):
                append_part(messages, UserPromptPart(_user_content(item.content, path)))
            case t.MessageParam():
                text = _only_text(item.content, path)
                append_part(messages, SystemPromptPart(text, "developer" if item.role == "developer" else "system"))
            case t.ReasoningParam():
                for thought in _reasoning_parts(item, context.summary_form):
                    append_part(messages, thought)
            case t.FunctionCallParam() | t.CustomToolCallParam() | t.ToolSearchCallParam() | t.LocalShellCallParam():
                call = _call_part(item)
                if call.complete:  # a call that was cut off is not sent to a model, and can have no result there
                    _register_call(calls, call.tool_call_id, call.tool_name)
                append_part(messages, call)
            case t.FunctionCallOutputParam() | t.ToolSearchOutputParam():
                name = _called_function(item, calls, path)
                if name is not None:
                    append_part(messages, ToolReturnPart(name, _tool_output(item, path), _call_id(item)))
                    continue
                problem = f"no call with call_id {_call_id(item)!r} comes before this output"
                if warnings is None:
                    _reject(path, problem, "call_id")
                append_part(messages, _output_as_text(item, path))
                warnings.append(f"{path}: {problem}; it is sent as text")
            case t.ItemReference():
                for message in _referenced_messages(item, context, path):
                    for earlier_part in message.parts:
                        if isinstance(earlier_part, ToolCallPart):
                            _register_call(calls, earlier_part.tool_call_id, earlier_part.tool_name)
                        append_part(messages, earlier_part)
            case t.CompactionParam():
                append_part(messages, SealedPart(item.encrypted_content, item.id))
            case t.OtherItemParam():
                append_part(messages, _other_part(item.native))
            case t.AdditionalToolsParam() | t.CompactionTriggerParam():
                pass  # not part of the conversation
    return messages


def item_messages(item: bytes, context: ReferenceContext, warnings: list[str] | None = None) -> list[ModelMessage]:
    """Convert one item that was stored as it was received; see `messages_of`."""
    return messages_of([_stored_item(msgspec.json.decode(item))], context, warnings)


def tool_items(items: Iterable[dict[str, Any]]) -> list[t.ItemParam]:
    """Return those of stored items that add tools."""
    return [_stored_item(item) for item in items if item["type"] in _TOOL_ITEM_TYPES]


def _stored_item(item: dict[str, Any]) -> t.ItemParam:
    stored: t.ItemParam = msgspec.convert(known_item(item), t.ItemParam)
    return stored


_TOOL_ITEM_TYPES = tuple(item.__struct_config__.tag for item in TOOL_ITEMS)


# --- items of every type -----------------------------------------------------------------------------------------

_ITEM_TYPES = frozenset(str(item.__struct_config__.tag) for item in get_args(t.ItemParam)) - {"other"}
CONTENT_TYPES = frozenset(str(content.__struct_config__.tag) for content in get_args(t.InputContent))
"""The types of content of messages and results."""
_CLIENT_CALLS = ("tool_search_call", "local_shell_call")
"""Calls that the client answers only if they have a `call_id`."""


def with_type(item: Any) -> Any:
    """Add the type of an item that leaves it out: a message has a role, a reference only an id."""
    if not isinstance(item, dict) or item.get("type") is not None:
        return item
    kind = "message" if "role" in item else "item_reference" if "id" in item else None
    return {**item, "type": kind} if kind else {name: item[name] for name in item if name != "type"}


def with_content_parts(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of a request with the content of a message as a list."""
    if item["type"] != "message" or not isinstance(item["content"], str):
        return item
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {**item, "content": [{"type": kind, "text": item["content"]}]}


def known_item(item: Any) -> Any:
    """Return an item of a request in a form that `ItemParam` can hold.

    An item of an unknown type becomes an `OtherItemParam`, and content of an unknown type becomes text.
    """
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str):
        return item
    if kind == "compaction_summary" and isinstance(item.get("encrypted_content"), str):
        return {**item, "type": "compaction"}
    if kind not in _ITEM_TYPES or (kind in _CLIENT_CALLS and not item.get("call_id")):
        return {"type": "other", "native": item, "id": item.get("id")}
    for name in ("content", "output"):
        if isinstance(item.get(name), list) and kind != "reasoning":
            item = {**item, name: [_known_content(content) for content in item[name]]}
    if isinstance(item.get("tools"), list):
        item = {**item, "tools": [known_form(tool) for tool in item["tools"]]}
    return item


def _known_content(content: Any) -> Any:
    kind = content.get("type") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind in CONTENT_TYPES or kind in ("reasoning_text", "summary_text"):
        return content  # reasoning is refused here
    return {"type": "input_text", "text": _readable(content)}


_UNREADABLE = ("type", "id", "status", "encrypted_content")


def _readable(native: dict[str, Any]) -> str:
    """Return what of an item or of content is readable, under its type."""
    fields = {name: value for name, value in native.items() if name not in _UNREADABLE and value is not None}
    return f"[{native['type']}] {json_text(fields)}"


def _other_part(native: dict[str, Any]) -> OpaquePart | UserPromptPart:
    """Return the part of an item that is not known here: of the model, or of its input."""
    kind, text = str(native["type"]), _readable(native)
    if kind.endswith(("_output", "_response")) or kind == "agent_message":
        return UserPromptPart([Text(text, wire_fields={OPENAI_WIRE: native})])
    id = native.get("id")
    return OpaquePart(kind, native, id=id if isinstance(id, str) else None, wire=OPENAI_WIRE, text=text)


# --- calls and their results -------------------------------------------------------------------------------------


def _call_part(
    item: t.FunctionCallParam | t.CustomToolCallParam | t.ToolSearchCallParam | t.LocalShellCallParam,
) -> ToolCallPart:
    """Return the call of the function that stands for the client's tool (see `client_tools`)."""
    args: str | dict[str, Any]
    match item:
        case t.FunctionCallParam():
            name, args = function_name(item.namespace, item.name), item.arguments
        case t.CustomToolCallParam():
            name, args = function_name(item.namespace, item.name), {INPUT: item.input}
        case t.ToolSearchCallParam():
            name, args = "tool_search", item.arguments if isinstance(item.arguments, str | dict) else {}
        case t.LocalShellCallParam():
            name = "local_shell"
            args = {key: value for key, value in item.action.items() if key != "type" and value not in (None, {})}
    return ToolCallPart(name, args, item.call_id, complete=item.status != "incomplete", item_id=item.id)


_OutputParam = t.FunctionCallOutputParam | t.ToolSearchOutputParam


def _call_id(item: _OutputParam) -> str:
    return item.call_id or (item.id or "" if isinstance(item, t.LocalShellCallOutputParam) else "")


def _called_function(item: _OutputParam, calls: dict[str, KnownCall], path: str) -> str | None:
    """Return the name of the function whose result this is, and count the result; None without a call."""
    id = _call_id(item)
    call = calls.get(id)
    if call is None:
        return None
    if call.pending_results == 0:
        _reject(path, f"the call with call_id {id!r} has its output already", "call_id")
    calls[id] = call._replace(pending_results=call.pending_results - 1)
    return call.name


def _output_as_text(item: _OutputParam, path: str) -> UserPromptPart:
    """Return a result without its call as content of the user."""
    name = item.name if isinstance(item, t.FunctionCallOutputParam) else "tool_search"
    title = f"[Result of {name or 'a call'}]"
    output = _tool_output(item, path)
    return UserPromptPart(f"{title}\n{output}" if isinstance(output, str) else [Text(title), *output])


def _register_call(calls: dict[str, KnownCall], id: str, name: str) -> None:
    pending_results = calls[id].pending_results if id in calls else 0
    calls[id] = KnownCall(name, pending_results + 1)


def _referenced_messages(item: t.ItemReference, context: ReferenceContext, path: str) -> list[ModelMessage]:
    if item.id not in context.items:
        raise RequestError(
            f"{path}: there is no item {item.id!r} here; an item that was not stored must be sent in full",
            kind="not_found",
            code="item_not_found",
            param=f"{path}.id",
        )
    return context.items[item.id]


def _assistant_parts(item: t.MessageParam, path: str) -> list[ModelResponsePart]:
    is_complete = item.status != "incomplete"
    if isinstance(item.content, str):
        return [TextPart(item.content, complete=is_complete, item_id=item.id)]
    parts: list[ModelResponsePart] = []
    for index, content in enumerate(item.content):
        match content:
            case t.Refusal():
                parts.append(RefusalPart(content.refusal, item_id=item.id))
            case t.OutputTextParam() | t.PlainTextParam() | t.InputText():
                parts.append(TextPart(content.text, complete=is_complete, item_id=item.id))
            case _:
                _reject(f"{path}.content[{index}]", "an assistant message holds output_text and refusal only", "type")
    return parts


def _reasoning_parts(item: t.ReasoningParam, summary_form: Form) -> list[ModelResponsePart]:
    """Return the sealed token if there is one, else the raw text if the client sent it, else the summaries."""
    if item.encrypted_content:
        texts = ("\n\n".join(entry.text for entry in entries) for entries in (item.content or [], item.summary))
        return [SealedPart(item.encrypted_content, item.id, tuple(filter(None, texts)))]
    is_complete = item.status != "incomplete"
    if item.content:
        return [ThinkingPart(c.text, complete=is_complete) for c in item.content if c.text]
    return [ThinkingPart(s.text, form=summary_form, complete=is_complete) for s in item.summary if s.text]


def _user_content(content: str | list[t.InputContent], path: str) -> str | list[UserContent]:
    if isinstance(content, str):
        return content
    return [_content(entry, f"{path}.content[{index}]") for index, entry in enumerate(content)]


def _content(content: t.InputContent, path: str) -> UserContent:
    match content:
        case t.InputText() | t.OutputTextParam() | t.PlainTextParam():
            return Text(content.text)
        case t.InputImage(image_url=None, file_id=None):
            _reject(path, "an input_image needs an image_url or a file_id", "image_url")
        case t.InputImage():
            return Image(url=content.image_url, file_id=content.file_id, detail=content.detail)
        case t.InputFile(file_data=None, file_url=None, file_id=None):
            _reject(path, "an input_file needs file_data, file_url or a file_id", "file_data")
        case t.InputFile():
            data, media_type = (None, None) if content.file_data is None else split_file_data(content.file_data)
            return File(
                url=content.file_url,
                data=data,
                media_type=media_type,
                file_id=content.file_id,
                filename=content.filename,
            )
        case t.InputVideo():
            return Video(url=content.video_url)
        case t.InputAudio():
            return Audio(data=content.input_audio.data, media_type=f"audio/{content.input_audio.format}")
        case t.Refusal():
            _reject(path, "only an assistant message can hold a refusal", "type")


def _only_text(content: str | list[t.InputContent], path: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for index, entry in enumerate(content):
        if not isinstance(entry, t.InputText | t.PlainTextParam | t.OutputTextParam):
            _reject(f"{path}.content[{index}]", "only text can stand here", "type")
        texts.append(entry.text)
    return "\n".join(texts)


def _tool_output(item: _OutputParam, path: str) -> str | list[UserContent]:
    """Return text as one string, and content with images or files as a list."""
    if isinstance(item, t.ToolSearchOutputParam):
        names = [tool.name for tool in item.tools if isinstance(tool, _NAMED_TOOLS)]
        return f"These tools can be called now: {', '.join(names)}" if names else "No tool was found."
    if isinstance(item.output, str):
        return item.output
    return joined_if_text([_content(content, f"{path}.output[{index}]") for index, content in enumerate(item.output)])


_NAMED_TOOLS = (t.FunctionToolParam, t.CustomToolParam, t.NamespaceToolParam)


def _reject(path: str, problem: str, field: str) -> NoReturn:
    raise RequestError(f"{path}: {problem}", code="invalid_value", param=f"{path}.{field}")
