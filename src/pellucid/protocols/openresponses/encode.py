"""Encodes events as OpenResponses: server-sent events, and the response that they add up to.

The order within an item is that of the specification: `output_item.added`, then for each content part
`content_part.added`, deltas, the part's own `.done`, `content_part.done`, and last `output_item.done`. Indices are
derived here: an item's place in `output`, a part's place in its item. `sequence_number` counts 0, 1, 2 … over all
events.

An encoder is pure: the time is an argument of each batch, and one batch is encoded as one piece of bytes. The most
frequent events are written from templates, all others from the types. Every text can be encoded: what UTF-8 cannot hold
(half a surrogate pair, for example from a Python program) is replaced by U+FFFD.

A provider's own tools, files and opaque blocks have no representation in this protocol and are not shown: extension
items would break clients that do not expect them. They stay in the stored turn. Their sealed data, and that of text and
calls (for example a signature), is in the `encrypted_content` of a reasoning item that is made for it (the carrier),
directly after the item or in its place, if the reader receives seals. A compaction is an item that holds its seal.

A call of one of the client's tools that are not plain functions is an item of OpenAI's type for that tool
(`client_tools`). Clients run a call when its item is done. The text of a custom tool that was cut off looks
like a complete one, so such an item has no `done` events; it is in the `output` of the response, as incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from ...accumulator import TEXT_FIELD
from ...errors import ErrorInfo
from ...events import (
    Event,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
)
from ...framing import sse_event
from ...parts import (
    DEFAULT_MEDIA_TYPES,
    Image,
    RefusalPart,
    Text,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
    UserContent,
    estimated_tokens,
)
from ...unicode import json_safe, replace_surrogates
from .. import text_metadata
from ..encoding import DONE, PING, complete_arguments, or_unset, to_json
from ..errors import status_of
from ..message_parts import joined_if_text
from . import types as t
from .client_tools import ClientTool, TextArgument, is_valid_argument
from .dialects import DIALECTS, OUTPUT_TEXT, REFUSAL, SUMMARY, ContentKind, Dialect
from .types import error_payload

Framing = Literal["events", "lines"]
"""Server-sent events, or one line of JSON for each event, which is one message of a socket."""

_FRAME_ENDS: dict[Framing, bytes] = {"events": b"\n\n", "lines": b"\n"}


class Encoder:
    """Encodes one response's stream.

    `start` and `feed` return bytes to send. `response` is the resource in its present state.
    """

    def __init__(
        self,
        response: t.Response,
        dialect: Dialect = "openresponses",
        *,
        obfuscate: bool = False,
        seals: bool = False,
        after: int = -1,
        framing: Framing = "events",
        tools: Mapping[str, ClientTool] = {},
    ) -> None:
        """Create the encoder of a response.

        Args:
            response: The resource before the run.
            dialect: Whose names the events of raw reasoning have.
            obfuscate: Whether deltas are padded, so that their size does not show the length of the text.
            seals: Whether items carry their seals.
            after: The sequence number of the last event that the reader has. Events up to it are not sent again.
            framing: How events are framed.
            tools: The client's tools that are not plain functions, by the name of their function.
        """
        self.response = response
        self.warnings: list[str] = []
        """What the client should know about the output. In a stream, each is also a comment."""
        self._tools = tools
        self._seals = seals
        self._after = after
        self._framing: Framing = framing
        self._dialect = DIALECTS[dialect]
        self._obfuscate = obfuscate
        self._sequence = 0
        self._out: list[bytes] = []
        self._item: _Item | None = None
        self._hidden_item_id = ""
        """The id of the open item, if this protocol has no representation of it."""
        self._part: _Part | None = None
        self._cut_thought: t.ReasoningItem | None = None
        """A thought that was cut off, and is not done yet."""
        self._reasoning_characters = 0
        """The length of the raw reasoning that was shown."""
        self._pending_thinking: ThinkingPart | None = None
        """A thinking part that has started and has no text yet."""

    @property
    def ping(self) -> bytes:
        """A comment; a socket has pings of its own."""
        return PING if self._framing == "events" else b""

    def start(self, *, queued: bool = False) -> bytes:
        """Return the events that open the stream."""
        if queued:
            self.response.status = "queued"
        self._response_event("created")
        self._response_event(self.response.status)
        return self.feed([], 0)

    def feed(self, events: list[Event], now: int) -> bytes:
        """Encode the events of one batch (see `protocols.Encoder`)."""
        for event in events:
            if type(event) is not PartDeltaEvent:
                if self._cut_thought is not None:
                    self._finish_cut_thought(event)
                handler = HANDLERS.get(type(event))
                if handler is not None:
                    handler(self, event, now)
                continue
            # Inlined in this loop, because nearly all events are deltas.
            part, delta = self._part, event.delta
            text: str | None = getattr(delta, TEXT_FIELD[type(delta)])
            if part is None:
                if not self._pending_thinking or not text or self._item is None:
                    continue
                is_summary = self._pending_thinking.form == "summary"
                part = self._open_content(self._item, SUMMARY if is_summary else self._dialect.reasoning)
            text_delta = delta if type(delta) is TextPartDelta else None
            if text and part.argument is not None:
                text = part.argument.feed(text)
            if text:
                try:
                    data = to_json(text)
                except UnicodeEncodeError:
                    data = to_json(replace_surrogates(text))
                tail = part.tail
                if text_delta is not None and text_delta.logprobs:
                    tail = b',"logprobs":%b}%b' % (to_json(_logprobs(text_delta.logprobs)), _FRAME_ENDS[self._framing])
                if self._obfuscate and part.name != "response.refusal":
                    tail = b',"obfuscation":"%b"%b' % (b"x" * (-len(data) % 32), tail)
                if self._sequence > self._after:
                    self._out.append(part.head % self._sequence + data + tail)
                self._sequence += 1
            if text_delta is not None and text_delta.annotations:
                self._add_citations(part, text_delta.annotations)
        output = b"".join(self._out)
        self._out.clear()
        return output

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """Return a function that encodes the text of further deltas; None where the next delta needs an event."""
        part = self._part
        is_plain = part is not None and part.argument is None and not self._obfuscate and self._sequence > self._after
        return self._encode_text if is_plain else None

    def _encode_text(self, text: str, now: int) -> bytes:
        part, number = self._part, self._sequence
        assert part is not None
        self._sequence = number + 1
        return part.head % number + to_json(text) + part.tail

    def _add_citations(self, part: _Part, annotations: list[dict[str, Any]]) -> None:
        for citation in _citations(annotations):
            self._write(
                "response.output_text.annotation.added",
                **part.location,
                annotation_index=len(part.annotations),
                annotation=citation,
            )
            part.annotations.append(citation)

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent, now: int) -> None:
        opening = _NEW_ITEMS.get(event.kind)
        if opening is None:
            self._hidden_item_id = event.id or ""
            return
        self._item = _Item(event.id or "", len(self.response.output), event.kind)
        opened = opening(event.id or "")
        if opened is not None:
            self._write("response.output_item.added", output_index=self._item.index, item=opened)

    def _item_end(self, event: ItemEndEvent, now: int) -> None:
        item, self._item = self._item, None
        # A compaction is nothing but its seal.
        seal = event.seal if self._seals or (item is not None and item.kind == "compaction") else None
        if item is None:
            if seal is not None:
                self._write_carrier(_carrier_id(self._hidden_item_id), seal)
            return
        if item.kind == "compaction":
            if seal is not None:
                compaction = t.CompactionItem(item.id, seal)
                self._write("response.output_item.added", output_index=item.index, item=compaction)
                self._finish_item(compaction)
            return
        if item.kind == "tool_call" and item.call is None:
            return
        done = item.output_item(event.status)
        if isinstance(done, t.ReasoningItem) and seal is not None:
            done.encrypted_content = seal
        if isinstance(done, t.ReasoningItem) and done.status == "incomplete":
            self._cut_thought = done
            return
        if isinstance(done, t.CustomToolCallItem) and done.status == "incomplete":
            self.response.output = [*self.response.output, done]
        else:
            self._finish_item(done)
        if seal is not None and not isinstance(done, t.ReasoningItem):
            self._write_carrier(_carrier_id(item.id), seal)

    def _finish_cut_thought(self, event: Event) -> None:
        """Finish a thought that was cut off, when it is known what follows.

        If another deployment goes on, the response can still be completed. In the specification, such a response has no
        incomplete item.
        """
        done, self._cut_thought = self._cut_thought, None
        assert done is not None
        if isinstance(event, ResponseEndEvent) and event.finish_reason == "pause":
            done.status = "completed"
        self._finish_item(done)

    def _write_carrier(self, id: str, seal: str) -> None:
        """Write a reasoning item that holds the seal of an item which has no field for it."""
        item = t.ReasoningItem(id=id, summary=[], status="in_progress")
        self._write("response.output_item.added", output_index=len(self.response.output), item=item)
        self._finish_item(msgspec.structs.replace(item, status="completed", encrypted_content=seal))

    def _finish_item(self, item: t.Item) -> None:
        index = len(self.response.output)
        self.response.output = [*self.response.output, item]
        self._write("response.output_item.done", output_index=index, item=item)

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, now: int) -> None:
        item, part = self._item, event.part
        if item is None:
            return
        if isinstance(part, ThinkingPart):
            # The part may hold a signature and no text: its content part opens with its first text.
            self._pending_thinking = part
        elif isinstance(part, TextPart | RefusalPart):
            self._open_content(item, OUTPUT_TEXT if isinstance(part, TextPart) else REFUSAL)
        elif isinstance(part, ToolCallPart):
            part = json_safe(part)
            item.tool = self._tools.get(part.tool_name) or ClientTool("function", part.tool_name)
            item.call = item.tool.call_item(item.id, part.tool_call_id, None, "in_progress")
            self._write("response.output_item.added", output_index=item.index, item=item.call)
            if isinstance(item.call, t.FunctionCallItem):
                self._part = _Part("response.function_call_arguments", item.location(), None, self._framing)
            elif isinstance(item.call, t.CustomToolCallItem):
                self._part = _Part("response.custom_tool_call_input", item.location(), None, self._framing)
                self._part.argument = TextArgument()

    def _open_content(self, item: _Item, kind: ContentKind) -> _Part:
        location = item.location(**{kind.index_field: len(item.contents[kind.index_field])})
        empty = kind.content_type(**{kind.text_field: ""})
        self._write(f"{kind.part_event}.added", **location, part=empty)
        self._part = _Part(kind.text_event, location, kind, self._framing)
        return self._part

    def _part_end(self, event: PartEndEvent, now: int) -> None:
        item, open_part, part = self._item, self._part, event.part
        self._part = self._pending_thinking = None
        if item is not None and isinstance(part, ToolCallPart):
            self._call_end(item, open_part, json_safe(part))
            return
        if item is None or open_part is None:
            return
        part = json_safe(part)
        name, location = open_part.name, open_part.location
        if isinstance(part, ThinkingPart | TextPart | RefusalPart) and (kind := open_part.kind) is not None:
            if isinstance(part, ThinkingPart) and part.form == "raw":
                self._reasoning_characters += len(part.content)
            fields: dict[str, Any] = {kind.text_field: part.content}
            content = kind.content_type(**fields)
            if isinstance(part, TextPart):
                content.annotations = open_part.annotations
                fields["logprobs"] = content.logprobs = _logprobs(part.logprobs)
            item.contents[kind.index_field].append(content)
            if isinstance(part, ThinkingPart) and part.form != "summary" and kind is SUMMARY:
                item.contents["content_index"].append(t.ReasoningText(part.content))
            self._write(f"{name}.done", **location, **fields)
            self._write(f"{kind.part_event}.done", **location, part=content)

    def _call_end(self, item: _Item, open_part: _Part | None, part: ToolCallPart) -> None:
        assert item.tool is not None
        text, unsent = complete_arguments(part)
        if open_part is not None:
            field = "arguments"
            if open_part.argument is not None:
                if part.complete and not is_valid_argument(text):
                    self._warn(f"the model did not write the input of the call {item.id} as JSON; it is used as it is")
                field, (text, unsent) = "input", open_part.argument.rest(text)
                if part.complete and not item.tool.permits(text):
                    self._warn(f"the input of the call {item.id} does not match the grammar of its tool")
            if unsent:
                self._write(f"{open_part.name}.delta", **open_part.location, delta=unsent)
            if part.complete or open_part.argument is None:
                self._write(f"{open_part.name}.done", **open_part.location, **{field: text})
        item.call = item.tool.call_item(item.id, part.tool_call_id, text, "in_progress")

    # --- the run -----------------------------------------------------------------------------------------------

    def _tool_result(self, event: FunctionToolResultEvent, now: int) -> None:
        if event.result.tool_name is None:
            return  # a message to the model about its answer, not the result of a call
        result = json_safe(event.result)
        output = _call_output(result) if isinstance(result, ToolReturnPart) else result.content
        item = t.FunctionCallOutputItem(id=event.id or "", call_id=result.tool_call_id, output=output)
        self._write("response.output_item.added", output_index=len(self.response.output), item=item)
        self._finish_item(item)

    def _response_start(self, event: ResponseStartEvent, now: int) -> None:
        self.response.deployment = or_unset(event.deployment)
        if self.response.status == "queued":
            self.response.status = "in_progress"
            self._response_event("in_progress")

    def _run_end(self, event: RunEndEvent, now: int) -> None:
        response = self.response
        response.usage = usage_of(event.usage, self._reasoning_characters)
        if event.status == "completed":
            response.status = "completed"
            response.completed_at = now // 1000
            self._response_event("completed")
        elif event.status == "failed":
            error = json_safe(event.failure)
            response.status = "failed"
            response.error = t.ResponseError(error.code or error.kind, error.full_message)
            self._error_event(error)
            self._response_event("failed")
        else:
            # The specification has no event for a cancelled response. A client that fetches the response sees it.
            response.status = "incomplete"
            response.incomplete_details = t.IncompleteDetails(event.incomplete_reason or "cancelled")
            self._response_event("incomplete")
        if self._framing == "events":
            self._out.append(DONE)

    def _error_event(self, error: ErrorInfo) -> None:
        payload = error_payload(error)
        if self._framing == "lines":
            # On a socket, errors have one form in both dialects.
            self._write("error", status=status_of(error), error=payload)
        elif self._dialect.has_error_object:
            self._write("error", error=payload)
        else:
            self._write("error", code=payload["code"], message=payload["message"], param=payload["param"])

    # --- writing -----------------------------------------------------------------------------------------------

    def _response_event(self, name: str) -> None:
        self._write(f"response.{name}", response=self.response)

    def _warn(self, warning: str) -> None:
        self.warnings.append(warning)
        if self._framing == "events" and self._sequence > self._after:
            self._out.append(f": {warning}\n\n".encode())

    def _write(self, name: str, **fields: Any) -> None:
        number = self._sequence
        self._sequence += 1
        if number > self._after:
            data = to_json({"type": name, "sequence_number": number, **fields})
            self._out.append(sse_event(data, name) if self._framing == "events" else data + b"\n")


def _carrier_id(id: str) -> str:
    return "rs_" + id.partition("_")[2]


class _Item:
    """The open item."""

    __slots__ = ("call", "contents", "id", "index", "kind", "tool")

    def __init__(self, id: str, index: int, kind: str) -> None:
        self.id = id
        self.index = index
        self.kind = kind
        self.contents: dict[str, list[Any]] = {"content_index": [], "summary_index": []}
        """The contents that are done, by the field that counts them."""
        self.call: t.CallItem | None = None
        self.tool: ClientTool | None = None
        """The tool of the client that is called."""

    def location(self, **index: int) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index, **index}

    def output_item(self, status: t.Status) -> t.Item:
        """Return the item as it is in `output`."""
        contents, summaries = self.contents.values()
        if self.kind == "reasoning":
            return t.ReasoningItem(id=self.id, summary=summaries, status=status, content=contents or msgspec.UNSET)
        if self.call is not None:
            return msgspec.structs.replace(self.call, status=status)
        return t.MessageItem(id=self.id, status=status, content=contents)


class _Part:
    """The open part: its location, and the template of its deltas."""

    __slots__ = ("annotations", "argument", "head", "kind", "location", "name", "tail")

    def __init__(self, name: str, location: dict[str, Any], kind: ContentKind | None, framing: Framing) -> None:
        self.name = name
        self.kind = kind
        """None for the arguments of a call."""
        self.location = location
        self.annotations: list[t.UrlCitation] = []
        self.argument: TextArgument | None = None
        """Reads the text of a custom tool, whose deltas are arguments of its function."""
        event = f"{name}.delta"
        line = f"event: {event}\ndata: " if framing == "events" else ""
        members = to_json(location)[1:-1].replace(b"%", b"%%")  # an id may hold a percent sign
        self.head = f'{line}{{"type":"{event}","sequence_number":%d,'.encode() + members + b',"delta":'
        self.tail = (b',"logprobs":[]}' if name == "response.output_text" else b"}") + _FRAME_ENDS[framing]


def _call_output(part: ToolReturnPart) -> str | list[t.ReturnedText | t.ReturnedImage | t.ReturnedFile]:
    if part.contents is None:
        return part.content_as_text()
    contents = joined_if_text(part.contents)
    return contents if isinstance(contents, str) else [_returned_content(content) for content in contents]


def _returned_content(content: UserContent) -> t.ReturnedText | t.ReturnedImage | t.ReturnedFile:
    if isinstance(content, Text):
        return t.ReturnedText(text=content.text)
    kind = content.media_type or DEFAULT_MEDIA_TYPES[content.kind]
    # A file that was uploaded to a provider has neither URL nor data: the item only shows that there was a file.
    url = content.url or f"data:{kind};base64,{content.data or ''}"
    if isinstance(content, Image):
        detail = content.detail if content.detail in ("low", "high") else "auto"
        return t.ReturnedImage(image_url=url, detail=detail)
    return t.ReturnedFile(filename=getattr(content, "filename", None) or content.kind, file_url=url)


def usage_of(usage: Usage, reasoning_characters: int = 0) -> t.Usage | None:
    """Return the usage, or None if nothing was counted.

    Args:
        usage: The counts of the model.
        reasoning_characters: The length of its reasoning, from which the tokens are estimated if it did not count them.
    """
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    input_tokens, output_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    reasoning_tokens = usage.output_reasoning_tokens or 0
    is_counted = usage.output_reasoning_tokens is not None or usage.output_tokens is None
    is_estimated = not is_counted and reasoning_characters > 0
    if is_estimated:
        reasoning_tokens = min(estimated_tokens(reasoning_characters), output_tokens)
    return t.Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        input_tokens_details=t.InputTokensDetails(usage.cache_read_tokens or 0),
        output_tokens_details=t.OutputTokensDetails(reasoning_tokens),
        reasoning_tokens_estimated=True if is_estimated else msgspec.UNSET,
        cost=or_unset(usage.cost),
    )


def _logprobs(raw: Any) -> list[t.LogProb]:
    return text_metadata.token_logprobs(raw, t.LogProb, t.TopLogProb)


def _citations(raw: list[dict[str, Any]]) -> list[t.UrlCitation]:
    return [
        t.UrlCitation(
            url=citation.url, title=citation.title, start_index=citation.start or 0, end_index=citation.end or 0
        )
        for citation in text_metadata.citations(raw)
    ]


_NEW_ITEMS: dict[str, Callable[[str], t.Item | None]] = {
    "reasoning": lambda id: t.ReasoningItem(id=id, summary=[], status="in_progress"),
    "message": lambda id: t.MessageItem(id=id, status="in_progress", content=[]),
    "tool_call": lambda id: None,
    "compaction": lambda id: None,
}
"""The kinds of items that `output` can hold, and the item with which each opens.

None: what the first event of the item must hold (a call's name, a compaction's seal) is known only later.
"""

HANDLERS: dict[type[Any], Callable[[Encoder, Any, int], None]] = {
    ResponseStartEvent: Encoder._response_start,
    ItemStartEvent: Encoder._item_start,
    ItemEndEvent: Encoder._item_end,
    PartStartEvent: Encoder._part_start,
    PartEndEvent: Encoder._part_end,
    FunctionToolResultEvent: Encoder._tool_result,
    RunEndEvent: Encoder._run_end,
}
"""The handler of each kind of event except deltas, which `feed` handles itself.

Events that are not listed are not shown.
"""
