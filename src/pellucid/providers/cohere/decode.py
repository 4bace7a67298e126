"""Decode a Cohere answer into model events.

Blocks have an index, a start event and an end event. A content delta has no type: its key says whether it is reasoning
or text. The plan that older models make before they call tools is reasoning, too, of a kind of its own
(`provider_details["subtype"]` is `tool_plan`). Calls have indexes of their own.

A citation belongs to the text that it names, by default the last one. Citations of other content are stored with the
response.

A whole response is an event without `type`. The contents of a message stay plain values: the same field holds an
object in an event and a list in a response, and unknown blocks are passed on whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...emit import Key
from ...errors import ErrorInfo
from ...parts import FinishReason, Origin, Usage
from ..errors import error_from_value
from ..frame_template import SkipRule
from ..lenient_json import convert_leniently, decode_lenient_json, dict_of, lenient_struct_decoder
from ..profile import Profile
from ..stream_decoder import WireReader


class Message(msgspec.Struct, gc=False):
    content: Any = None
    tool_plan: str | None = None
    tool_calls: Any = None
    citations: Any = None


class Delta(msgspec.Struct, gc=False):
    message: Message | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    id: str | None = None
    index: int | None = None
    delta: Delta | None = None
    logprobs: Any = None
    # Fields of a whole response, or of an error (then `message` is a text).
    message: Any = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


read_event = lenient_struct_decoder(Event)


FINISH_REASONS: dict[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_call",
    "ERROR": "error",
    "TIMEOUT": "error",
}

TOOL_PLAN = "tool_plan"
"""Value of `provider_details["subtype"]` for reasoning that is a plan for tools."""


class _Call:
    __slots__ = ("has_arguments", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.has_arguments = False
        """Whether arguments have arrived."""


class CohereReader(WireReader):
    wire = "Cohere chat"
    code = "not_cohere"
    frame_type = Event
    ignored_fields = ("delta.message.role", "response_type")

    def __init__(self, profile: Profile, origin: Origin) -> None:
        super().__init__(origin, profile.form)
        self._last_text_index: int | None = None
        """Index of the last block of text."""
        self._text_citations: dict[int | None, list[dict[str, Any]]] = {}
        """Native citations of each block of text, by index."""
        self._unknown_blocks: dict[int | None, dict[str, Any]] = {}
        """Open blocks of unknown types, by index."""
        self._latest_calls: dict[int | None, _Call] = {}
        """The last call of each index."""
        self._call_count = 0

    # --- frames ----------------------------------------------------------------------------------------------

    def read_frame(self, data: bytes, name: str) -> None:
        event = read_event(data)
        if event is None:
            self.fail_unreadable(data, name)
            return
        kind = event.type or name
        handler = _EVENT_HANDLERS.get(kind)
        if handler is not None:
            self.is_recognized = True
            handler(self, event)
        elif isinstance(event.message, dict):
            self.is_recognized = True
            self._read_body(event, event.message)
        elif event.message or event.error or name == "error":
            self.fail(error_from_value(decode_lenient_json(data)))
        elif kind and kind not in _IGNORED_EVENTS:
            self.is_recognized = True
            self.emit_opaque(kind, {"event": decode_lenient_json(data)})

    def flush(self) -> None:
        for index in list(self._unknown_blocks):
            self._end_unknown_block(index)

    def end_normally(self) -> None:
        if not self.finished:
            self.emit.finish("tool_call" if self._call_count else "stop")

    def _start_message(self, event: Event) -> None:
        self.emit.start(event.id)

    def _end_message(self, event: Event) -> None:
        self.done = True
        self.emit.start(event.id)
        if event.delta is not None:
            self._read_end(event.delta)

    def _read_end(self, end: Delta) -> None:
        self.finished = True
        reason = end.finish_reason
        if reason:
            self.emit.finish(FINISH_REASONS.get(reason), reason)
        else:
            self.emit.finish("tool_call" if self._call_count else "stop")
        if end.usage:
            self.emit.usage = read_usage(end.usage)
        if end.error:
            self.fail(error_from_value({"error": end.error}))
        elif reason == "TIMEOUT":
            self.fail(ErrorInfo("timeout", "the provider's model ran out of time", code=reason))

    # --- content ---------------------------------------------------------------------------------------------

    def _read_content(self, event: Event) -> None:
        """Read a start or a delta. Both hold content; that of a start is mostly empty."""
        content = event.delta.message.content if event.delta is not None and event.delta.message is not None else None
        if type(content) is dict:
            logprobs = event.logprobs
            self._add_content(event.index, content, [_logprob(logprobs)] if isinstance(logprobs, dict) else None)
            if len(content) == 1 and event.index not in self._unknown_blocks:
                self.skip_rule = SkipRule()

    def _add_content(
        self, index: int | None, content: dict[str, Any], logprobs: list[dict[str, Any]] | None = None
    ) -> None:
        if index in self._unknown_blocks or content.get("type") not in _KNOWN_TYPES:
            block = self._unknown_blocks.setdefault(index, {})
            for name, value in content.items():
                previous = block.get(name)
                block[name] = previous + value if isinstance(previous, str) and isinstance(value, str) else value
            return
        thinking, text = content.get("thinking"), content.get("text")
        if thinking and isinstance(thinking, str):
            self.emit.thinking(("thinking", index), thinking, explicit_end=True)
        if text and isinstance(text, str):
            if index != self._last_text_index or index not in self._text_citations:
                self._last_text_index = index
                self._text_citations.setdefault(index, [])
            self.emit.text(("text", index), text, logprobs=logprobs, explicit_end=True)

    def _end_content(self, event: Event) -> None:
        self._end_unknown_block(event.index)
        self.emit.close(("thinking", event.index))
        self.emit.close(("text", event.index))

    def _end_unknown_block(self, index: int | None) -> None:
        block = self._unknown_blocks.pop(index, None)
        if block is not None:
            self.emit_opaque(str(block.get("type") or "content"), block)

    def _read_tool_plan(self, event: Event) -> None:
        self._add_plan(_message_of(event).tool_plan)

    def _add_plan(self, text: str | None) -> None:
        if text:
            details = None if self.emit.is_open(TOOL_PLAN) else {"subtype": TOOL_PLAN}
            self.emit.thinking(TOOL_PLAN, text, details=details)

    # --- citations -------------------------------------------------------------------------------------------

    def _read_citations(self, event: Event) -> None:
        for citation in _object_list(_message_of(event).citations):
            self._add_citation(citation)

    def _add_citation(self, citation: dict[str, Any]) -> None:
        index = citation.get("content_index")
        index = index if isinstance(index, int) else self._last_text_index
        is_about_text = (citation.get("type") or "TEXT_CONTENT") == "TEXT_CONTENT"
        if is_about_text and self.emit.is_open(("text", index)):
            # Details are replaced as a whole, so each event has all citations of this block.
            citations = self._text_citations[index] = [*self._text_citations.get(index, []), citation]
            self.emit.text(("text", index), annotations=[_annotation(citation)], details={"citations": citations})
        else:
            self.emit.provider_details.setdefault("citations", []).append(citation)

    # --- calls -----------------------------------------------------------------------------------------------

    def _start_calls(self, event: Event) -> None:
        for call in _object_list(_message_of(event).tool_calls):
            self._start_call(event.index, call)

    def _start_call(self, index: int | None, call: dict[str, Any]) -> None:
        self._call_count += 1
        self._latest_calls[index] = call_state = _Call(("call", self._call_count))
        name, id = dict_of(call, "function").get("name"), call.get("id")
        self.emit.tool_call(
            call_state.key,
            name=name if isinstance(name, str) else "",
            call_id=id if isinstance(id, str) else None,
            explicit_end=True,
        )
        self._add_arguments(index, call)

    def _add_call_delta(self, event: Event) -> None:
        for call in _object_list(_message_of(event).tool_calls):
            self._add_arguments(event.index, call)

    def _add_arguments(self, index: int | None, call: dict[str, Any]) -> None:
        args, call_state = dict_of(call, "function").get("arguments"), self._latest_calls.get(index)
        # A call without arguments has none, or `null`: `{}` is emitted when the call ends.
        if not isinstance(args, str | dict) or args == "":
            return
        if call_state is None:
            self.emit.tool_call(("call", None, index), args)
        elif call_state.has_arguments or args != "null":
            call_state.has_arguments = True
            self.emit.tool_call(call_state.key, args)

    def _end_call(self, event: Event) -> None:
        call_state = self._latest_calls.get(event.index)
        if call_state is not None:
            if not call_state.has_arguments:
                self.emit.tool_call(call_state.key, "{}")
            self.emit.close(call_state.key)

    # --- a whole response ------------------------------------------------------------------------------------

    def _read_body(self, event: Event, raw: dict[str, Any]) -> None:
        """Emit a whole response in the order of a stream: the plan, the blocks with their citations, the calls."""
        message = convert_leniently(raw, Message)
        self.emit.start(event.id)
        self._add_plan(message.tool_plan)
        blocks = message.content if isinstance(message.content, list) else [message.content]
        citations = _object_list(message.citations)
        for index, block in enumerate(blocks):
            content = {"type": "text", "text": block} if isinstance(block, str) else block
            if isinstance(content, dict):
                is_first_text = not self._text_citations
                self._add_content(index, content)
                content_indexes = (index, None) if is_first_text and self._text_citations else (index,)
                for citation in [
                    citation for citation in citations if citation.get("content_index") in content_indexes
                ]:
                    citations.remove(citation)
                    self._add_citation(citation)
                self._end_content(Event(index=index))
        for citation in citations:
            self._add_citation(citation)
        for index, call in enumerate(_object_list(message.tool_calls)):
            self._start_call(index, call)
            self._end_call(Event(index=index))
        if event.logprobs:
            self.emit.provider_details["logprobs"] = event.logprobs
        self._read_end(Delta(finish_reason=event.finish_reason, usage=event.usage, error=event.error))


_EVENT_HANDLERS: dict[str, Callable[[CohereReader, Event], None]] = {
    "content-delta": CohereReader._read_content,
    "content-start": CohereReader._read_content,
    "content-end": CohereReader._end_content,
    "tool-plan-delta": CohereReader._read_tool_plan,
    "tool-call-start": CohereReader._start_calls,
    "tool-call-delta": CohereReader._add_call_delta,
    "tool-call-end": CohereReader._end_call,
    "citation-start": CohereReader._read_citations,
    "message-start": CohereReader._start_message,
    "message-end": CohereReader._end_message,
}
_IGNORED_EVENTS = ("citation-end", "debug")
"""Events without content of the answer."""

_KNOWN_TYPES = (None, "text", "thinking")
"""Types of content that are decoded. A delta has no type."""


def _object_list(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, or of a single object."""
    return [entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, dict)]


def _message_of(event: Event) -> Message:
    return (event.delta.message if event.delta is not None else None) or Message()


def _annotation(citation: dict[str, Any]) -> dict[str, Any]:
    """Convert a citation to OpenAI's form: of a URL if a source has one, else with its sources."""
    sources = _object_list(citation.get("sources"))
    documents = [document for source in sources if isinstance(document := source.get("document"), dict)]
    page = next((document for document in documents if isinstance(document.get("url"), str)), None)
    location = {"start_index": citation.get("start"), "end_index": citation.get("end"), "text": citation.get("text")}
    if page is not None:
        return {"type": "url_citation", **location, "url": page["url"], "title": page.get("title")}
    return {"type": "citation", **location, "sources": sources}


def _logprob(item: dict[str, Any]) -> dict[str, Any]:
    """Return the log probability of a piece of text: the sum of its tokens' log probabilities."""
    logs = item.get("logprobs")
    known = [log for log in logs if isinstance(log, int | float)] if isinstance(logs, list) else []
    return {"token": str(item.get("text") or ""), "logprob": sum(known), "top_logprobs": []}


# --- usage -----------------------------------------------------------------------------------------------------


def read_usage(raw: dict[str, Any]) -> Usage:
    """Read the token counts of the model. Billed units are lower, and are stored in the details."""
    tokens = dict_of(raw, "tokens")
    billed_counts = {f"billed_{name}": _integer_count(value) for name, value in dict_of(raw, "billed_units").items()}
    return Usage(
        input_tokens=_integer_count(tokens.get("input_tokens")),
        output_tokens=_integer_count(tokens.get("output_tokens")),
        cache_read_tokens=_integer_count(raw.get("cached_tokens")),
        details={name: value for name, value in billed_counts.items() if value is not None},
    )


def _integer_count(value: Any) -> int | None:
    """Return a count as an integer. Cohere sends counts as floats."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        return None
    return int(value)
