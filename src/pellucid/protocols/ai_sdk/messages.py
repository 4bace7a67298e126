"""Convert the messages of `useChat` to parts.

A UI message holds everything that one question led to: steps, each with the output of the model and the results of its
calls. Here each step is a response again, and the results of its calls are the next request.

* Reasoning, text, calls and files keep their order. The token of a part becomes a `SealedPart` before the part; when
  the token is opened, its content replaces the part (see `sealing.attach`). For a provider's own tool with a token,
  only the token is used.
* A call with an output, an error or a denied approval becomes a call and its result, also if this server does not
  know the tool. A call without a result is sent to no model (`providers.history`). Neither is an interrupted thought,
  nor a thought at the end of a message that no answer follows.
* A message that was inserted into a running answer (`steering-message`) becomes a user's message at its position.
* Sources and data parts are for pages and are ignored (but for the data part that carries a token). Unknown parts of
  an assistant's message are ignored; unknown parts of a user's message are an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from ...conversation import join_messages
from ...parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
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
    json_text,
)
from ...unicode import truncate
from ..decoding import convert, invalid
from ..message_parts import joined_if_text, media_content, with_visible_texts, without_trailing_reasoning
from .chunks import METADATA_KEY, PartMetadata, part_metadata

SEAL_PART = f"data-{METADATA_KEY}"
"""The type of the part that carries the token of an item that this protocol does not define."""


class UIMessage(msgspec.Struct):
    role: Literal["system", "user", "assistant"]
    parts: list[dict[str, Any]]
    id: str | None = None


# --- parts, with the fields that are read ------------------------------------------------------------------------


class TextUIPart(msgspec.Struct, rename="camel"):
    text: str
    state: str | None = None
    provider_metadata: Any = None


class FileUIPart(msgspec.Struct, rename="camel"):
    media_type: str
    url: str
    filename: str | None = None
    provider_metadata: Any = None


class Approval(msgspec.Struct):
    approved: bool | None = None
    reason: str | None = None


class ToolUIPart(msgspec.Struct, rename="camel"):
    tool_call_id: str
    state: str
    tool_name: str | None = None
    input: Any = None
    raw_input: Any = None
    output: Any = UNSET
    error_text: str | None = None
    provider_executed: bool | None = None
    preliminary: bool | None = None
    approval: Approval | None = None
    call_provider_metadata: Any = None
    result_provider_metadata: Any = None


class SteeringUIPart(msgspec.Struct):
    parts: list[dict[str, Any]]


# --- the conversation --------------------------------------------------------------------------------------------


def history_of(ui_messages: Sequence[UIMessage]) -> list[ModelMessage]:
    """Convert the messages of a client to the conversation for a model.

    Raises:
        RequestError: A message is invalid; `param` is its path.
    """
    messages: list[ModelMessage] = []
    for index, message in enumerate(ui_messages):
        path = f"messages[{index}].parts"
        match message.role:
            case "system":
                text = "".join(
                    convert(part, TextUIPart, f"{path}[{number}]").text for number, part in _of_type(message, "text")
                )
                messages += [ModelRequest([SystemPromptPart(text)])] if text else []
            case "user":
                messages += _user_messages(message.parts, path)
            case "assistant":
                messages += _AssistantMessage(message.parts, path).messages
    return join_messages(messages)


def _of_type(message: UIMessage, part_type: str) -> list[tuple[int, dict[str, Any]]]:
    return [(number, part) for number, part in enumerate(message.parts) if part.get("type") == part_type]


def token_path(messages: Sequence[UIMessage], token: str) -> str:
    """Return the path of a sealed token in the messages."""
    for index, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            for name in ("providerMetadata", "callProviderMetadata", "resultProviderMetadata"):
                if part_metadata(part.get(name)).token == token:
                    return f"messages[{index}].parts[{number}].{name}.{METADATA_KEY}.sealed"
            if part.get("type") == SEAL_PART and PartMetadata(part.get("data")).token == token:
                return f"messages[{index}].parts[{number}].data.sealed"
    return "messages"


# --- user messages -----------------------------------------------------------------------------------------------


def _user_messages(parts: list[dict[str, Any]], base_path: str) -> list[ModelMessage]:
    contents: list[UserContent] = []
    for number, part in enumerate(parts):
        path, kind = f"{base_path}[{number}]", str(part.get("type"))
        if kind == "text":
            contents.append(Text(convert(part, TextUIPart, path).text))
        elif kind == "file":
            contents.append(_user_file(convert(part, FileUIPart, path), path))
        elif not kind.startswith(("data-", "source-", "step-")):
            raise invalid(f"{path}.type", f"a user's message can have text and files only, not {truncate(kind)!r}")
    if not contents:
        return []
    return [ModelRequest([UserPromptPart(joined_if_text(contents))])]


def _user_file(file: FileUIPart, path: str) -> UserContent:
    data, media_type = _split_data_url(file.url)
    fields: dict[str, Any]
    if data is not None:
        fields = {"data": data, "media_type": media_type or file.media_type}
    elif file.url.startswith(("https://", "http://")):
        fields = {"url": file.url, "media_type": file.media_type}
    else:
        raise invalid(f"{path}.url", "must be a data: URL in base64, or an http(s) URL")
    return media_content(file.media_type, fields, file.filename)


def _split_data_url(url: str) -> tuple[str | None, str | None]:
    """Return the base64 data and the media type of a data URL; None for both if it is no data URL in base64."""
    head, comma, data = url.partition(",")
    if not (comma and head[:5].lower() == "data:" and head.lower().endswith(";base64")):
        return None, None
    return data, head[5:].partition(";")[0] or None


# --- assistant messages ------------------------------------------------------------------------------------------


class _AssistantMessage:
    """Converts one message of the assistant: its steps become responses, and requests with the results of calls."""

    def __init__(self, parts: list[dict[str, Any]], path: str) -> None:
        self.messages: list[ModelMessage] = []
        self._response_parts: list[ModelResponsePart] = []
        self._results: list[ModelRequestPart] = []
        self._sealed_item_ids = {
            metadata.item_id
            for part in parts
            if part.get("type") == SEAL_PART and (metadata := PartMetadata(part.get("data")))
        }
        """The ids of items whose token is in a part of its own."""
        for number, part in enumerate(parts):
            self._add(part, f"{path}[{number}]")
        self._end_step()

    def _add(self, raw: dict[str, Any], path: str) -> None:
        kind = raw.get("type")
        if not isinstance(kind, str):
            raise invalid(f"{path}.type", "a part needs a type")
        if kind == "step-start":
            self._end_step()
        elif kind == "text":
            self._text(convert(raw, TextUIPart, path))
        elif kind == "reasoning":
            self._reasoning(convert(raw, TextUIPart, path))
        elif kind == "file":
            self._file(convert(raw, FileUIPart, path))
        elif kind == "dynamic-tool":
            self._tool(convert(raw, ToolUIPart, path), raw.get("toolName"), path)
        elif kind.startswith("tool-"):
            self._tool(convert(raw, ToolUIPart, path), kind.removeprefix("tool-"), path)
        elif kind == SEAL_PART:
            self._add_seal(PartMetadata(raw.get("data")))
        elif kind == "steering-message":
            self._end_step()
            self.messages += _user_messages(convert(raw, SteeringUIPart, path).parts, f"{path}.parts")

    def _end_step(self) -> None:
        parts = without_trailing_reasoning(with_visible_texts(self._response_parts), _is_content)
        self._response_parts = []
        results, self._results = self._results, []
        if parts:
            self.messages.append(ModelResponse(parts))
        if results:
            self.messages.append(ModelRequest(results))

    def _add_seal(self, metadata: PartMetadata, thought: str = "") -> bool:
        """Add the token of a part, if it has one.

        Args:
            metadata: The part's metadata.
            thought: The reasoning in the part.
        """
        if metadata.token is not None:
            texts = (thought,) if thought and metadata.item_id is None else ()
            self._response_parts.append(SealedPart(metadata.token, metadata.item_id, texts))
        return metadata.token is not None

    def _text(self, part: TextUIPart) -> None:
        metadata = part_metadata(part.provider_metadata)
        self._add_seal(metadata)
        complete = metadata.is_complete and part.state != "streaming"
        if part.text and metadata.is_refusal:
            self._response_parts.append(RefusalPart(part.text, complete=complete))
        elif part.text:
            self._response_parts.append(TextPart(part.text, complete=complete, item_id=metadata.item_id))

    def _reasoning(self, part: TextUIPart) -> None:
        metadata = part_metadata(part.provider_metadata)
        has_seal = self._add_seal(metadata, part.text)
        complete = metadata.is_complete and part.state != "streaming"
        if part.text and not (has_seal and metadata.item_id is None):
            self._response_parts.append(
                ThinkingPart(part.text, form=metadata.form, complete=complete, item_id=metadata.item_id)
            )

    def _file(self, part: FileUIPart) -> None:
        if not self._add_seal(part_metadata(part.provider_metadata)):
            data, media_type = _split_data_url(part.url)
            if data is not None:
                self._response_parts.append(FilePart(data, media_type or part.media_type))

    def _tool(self, part: ToolUIPart, name: Any, path: str) -> None:
        if not isinstance(name, str) or not name:
            raise invalid(f"{path}.toolName", "the name of the tool is required")
        call, result = part_metadata(part.call_provider_metadata), part_metadata(part.result_provider_metadata)
        if part.state == "input-streaming" or not (call.is_complete and result.is_complete):
            return  # The model was cut off in the call.
        has_seal = [self._add_seal(call), self._add_seal(result)]
        raw_args = part.input if part.input is not None else part.raw_input
        args = raw_args if isinstance(raw_args, str | dict) or raw_args is None else json_text(raw_args)
        if not part.provider_executed:
            self._response_parts.append(ToolCallPart(name, args, part.tool_call_id))
            if (returned := _tool_outcome(part)) is not None:
                content, outcome = returned
                self._results.append(ToolReturnPart(name, content, part.tool_call_id, outcome))
        elif (
            not any(has_seal)
            and call.item_id not in (self._sealed_item_ids - {None})
            and (returned := _tool_outcome(part)) is not None
        ):
            self._response_parts.append(BuiltinToolCallPart(name, args, part.tool_call_id))
            self._response_parts.append(BuiltinToolReturnPart(name, returned[0], part.tool_call_id))


_Outcome = Literal["success", "failed", "denied"]


def _tool_outcome(part: ToolUIPart) -> tuple[Any, _Outcome] | None:
    """Return the content and the outcome of a call; None if it has no result."""
    approval = part.approval or Approval()
    if part.state == "output-available" and part.output is not UNSET and not part.preliminary:
        return part.output, "success"
    if part.state == "output-error":
        return part.error_text or "It failed.", "failed"
    if part.state == "output-denied" or approval.approved is False:
        return approval.reason or "The user denied this call.", "denied"
    return None


def _is_content(part: ModelResponsePart) -> bool:
    if isinstance(part, SealedPart):
        return part.item_id is not None and not part.item_id.startswith("rs_")
    return not isinstance(part, ThinkingPart)
