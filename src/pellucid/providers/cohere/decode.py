"""Bytes of a Cohere answer to events.

Blocks have an index, a start and an end, and the wire ends them itself. A content delta has no type: its key says
whether it is thought or text. The plan that older models make before they call tools is thought too, of its own kind
(`provider_details["subtype"]` is `tool_plan`). Calls count their indexes apart from content.

A citation belongs to the text it is about, which is the last one unless it says otherwise; citations of anything else
stay with the response.

What is read of an event, or of a whole response, which has no `type`.

What is inside a message stays plain values: the same field holds an object in an event and a list in a response, and
unknown blocks ride through whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...emit import Key
from ...errors import ErrorInfo
from ...parts import FinishReason, OpaquePart, Origin, Usage
from ..answer import AnswerDecoder, EventFrames, Reader
from ..faults import fault_of_value
from ..fitting import fit, loose_json, struct_reader
from ..frame_template import SkipRule
from ..profile import Profile


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
    # A whole response, or an error (then `message` is a text).
    message: Any = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


read_event = struct_reader(Event)


FINISH_REASONS: dict[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_call",
    "ERROR": "error",
    "TIMEOUT": "error",
}

TOOL_PLAN = "tool_plan"
"""The kind of thought that is a plan for tools: `provider_details["subtype"]`."""


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte; the header is sometimes wrong."""
    return AnswerDecoder(_Reader(origin), EventFrames())


class _Call:
    __slots__ = ("argued", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.argued = False
        """Whether arguments have come."""


class _Reader(Reader):
    wire = "Cohere chat"
    code = "not_cohere"

    def __init__(self, origin: Origin) -> None:
        super().__init__(origin)
        self._text_index: int | None = None
        """The latest block of text."""
        self._texts: dict[int | None, list[dict[str, Any]]] = {}
        """Blocks of text, and their citations as they came."""
        self._others: dict[int | None, dict[str, Any]] = {}
        """Blocks of types that are not known, as far as they have come."""
        self._calls: dict[int | None, _Call] = {}
        """The latest call under each index."""
        self._called = 0

    # --- frames ----------------------------------------------------------------------------------------------

    def frame(self, data: bytes, name: str) -> None:
        event = read_event(data)
        if event is None:
            if name == "error":
                self.fail(fault_of_value(data.decode("utf-8", "replace")))
            elif data.strip():
                self.refuse(data)
            return
        kind = event.type or name
        step = _STEPS.get(kind)
        if step is not None:
            self.heard = True
            step(self, event)
        elif isinstance(event.message, dict):
            self.heard = True
            self._body(event, event.message)
        elif event.message or event.error or name == "error":
            self.fail(fault_of_value(loose_json(data)))
        elif kind and kind not in _SILENT:
            self.heard = True
            self._opaque(kind, {"event": loose_json(data)})

    def flush(self) -> None:
        for index in list(self._others):
            self._end_other(index)

    def settle(self) -> None:
        if not self.finished:
            self.emit.finish("tool_call" if self._called else "stop")

    def _message_start(self, event: Event) -> None:
        self.emit.start(event.id)

    def _message_end(self, event: Event) -> None:
        self.done = True
        self.emit.start(event.id)
        if event.delta is not None:
            self._over(event.delta)

    def _over(self, end: Delta) -> None:
        self.finished = True
        reason = end.finish_reason
        if reason:
            self.emit.finish(FINISH_REASONS.get(reason), reason)
        else:
            self.emit.finish("tool_call" if self._called else "stop")
        if end.usage:
            self.emit.usage = read_usage(end.usage)
        if end.error:
            self.fail(fault_of_value({"error": end.error}))
        elif reason == "TIMEOUT":
            self.fail(ErrorInfo("timeout", "the upstream's model ran out of time", code=reason))

    # --- content ---------------------------------------------------------------------------------------------

    def _content(self, event: Event) -> None:
        """A start or a delta: both hold content, a start mostly empty one."""
        content = event.delta.message.content if event.delta is not None and event.delta.message is not None else None
        if type(content) is dict:
            logprobs = event.logprobs
            self._piece(event.index, content, [_logprob(logprobs)] if isinstance(logprobs, dict) else None)
            if len(content) == 1 and event.index not in self._others:
                self.skip_rule = SkipRule()

    def _piece(self, index: int | None, content: dict[str, Any], logprobs: list[dict[str, Any]] | None = None) -> None:
        if index in self._others or content.get("type") not in _KNOWN:
            whole = self._others.setdefault(index, {})
            for name, value in content.items():
                before = whole.get(name)
                whole[name] = before + value if isinstance(before, str) and isinstance(value, str) else value
            return
        thinking, text = content.get("thinking"), content.get("text")
        if thinking and isinstance(thinking, str):
            self.emit.thinking(("thinking", index), thinking, ends=True)
        if text and isinstance(text, str):
            if index != self._text_index or index not in self._texts:
                self._text_index = index
                self._texts.setdefault(index, [])
            self.emit.text(("text", index), text, logprobs=logprobs, ends=True)

    def _content_end(self, event: Event) -> None:
        self._end_other(event.index)
        self.emit.close(("thinking", event.index))
        self.emit.close(("text", event.index))

    def _end_other(self, index: int | None) -> None:
        other = self._others.pop(index, None)
        if other is not None:
            self._opaque(str(other.get("type") or "content"), other)

    def _tool_plan(self, event: Event) -> None:
        if event.delta is not None and event.delta.message is not None:
            self._plan(event.delta.message.tool_plan)

    def _plan(self, text: str | None) -> None:
        if text:
            said = None if self.emit.is_open(TOOL_PLAN) else {"subtype": TOOL_PLAN}
            self.emit.thinking(TOOL_PLAN, text, details=said)

    def _opaque(self, kind: str, native: Any) -> None:
        self.emit.whole(OpaquePart(kind, native, provider_name=self.emit.origin.provider))

    # --- citations -------------------------------------------------------------------------------------------

    def _citation(self, event: Event) -> None:
        if event.delta is not None and event.delta.message is not None:
            for citation in _entries(event.delta.message.citations):
                self._cite(citation)

    def _cite(self, citation: dict[str, Any]) -> None:
        index = citation.get("content_index")
        index = index if isinstance(index, int) else self._text_index
        about_text = (citation.get("type") or "TEXT_CONTENT") == "TEXT_CONTENT"
        if about_text and self.emit.is_open(("text", index)):
            # Details are replaced as a whole: all that came for this block, each time.
            cited = self._texts[index] = [*self._texts.get(index, []), citation]
            self.emit.text(("text", index), annotations=[_annotation(citation)], details={"citations": cited})
        else:
            self.emit.provider_details.setdefault("citations", []).append(citation)

    # --- calls -----------------------------------------------------------------------------------------------

    def _call_start(self, event: Event) -> None:
        for call in _calls(event):
            self._call(event.index, call)

    def _call(self, index: int | None, call: dict[str, Any]) -> None:
        self._called += 1
        self._calls[index] = opened = _Call(("call", self._called))
        name, id = _function(call).get("name"), call.get("id")
        self.emit.tool_call(
            opened.key,
            name=name if isinstance(name, str) else "",
            call_id=id if isinstance(id, str) else None,
            ends=True,
        )
        self._arguments(index, call)

    def _call_delta(self, event: Event) -> None:
        for call in _calls(event):
            self._arguments(event.index, call)

    def _arguments(self, index: int | None, call: dict[str, Any]) -> None:
        args, opened = _function(call).get("arguments"), self._calls.get(index)
        # A function without parameters is called with nothing, or with `null`: `{}` when the call ends.
        if not isinstance(args, str | dict) or args == "":
            return
        if opened is None:
            self.emit.tool_call(("call", None, index), args)
        elif opened.argued or args != "null":
            opened.argued = True
            self.emit.tool_call(opened.key, args)

    def _call_end(self, event: Event) -> None:
        opened = self._calls.get(event.index)
        if opened is not None:
            if not opened.argued:
                self.emit.tool_call(opened.key, "{}")
            self.emit.close(opened.key)

    # --- a whole response ------------------------------------------------------------------------------------

    def _body(self, event: Event, raw: dict[str, Any]) -> None:
        """The plan, the blocks with their citations, the calls: as a stream would have brought them."""
        message = fit(raw, Message)
        self.emit.start(event.id)
        self._plan(message.tool_plan)
        blocks = message.content if isinstance(message.content, list) else [message.content]
        citations = _entries(message.citations)
        for index, block in enumerate(blocks):
            content = {"type": "text", "text": block} if isinstance(block, str) else block
            if isinstance(content, dict):
                unsaid = not self._texts
                self._piece(index, content)
                here = (index, None) if unsaid and self._texts else (index,)
                for citation in [citation for citation in citations if citation.get("content_index") in here]:
                    citations.remove(citation)
                    self._cite(citation)
                self._content_end(Event(index=index))
        for citation in citations:
            self._cite(citation)
        for index, call in enumerate(_entries(message.tool_calls)):
            self._call(index, call)
            self._call_end(Event(index=index))
        if event.logprobs:
            self.emit.provider_details["logprobs"] = event.logprobs
        self._over(Delta(finish_reason=event.finish_reason, usage=event.usage, error=event.error))


_STEPS: dict[str, Callable[[_Reader, Event], None]] = {
    "content-delta": _Reader._content,
    "content-start": _Reader._content,
    "content-end": _Reader._content_end,
    "tool-plan-delta": _Reader._tool_plan,
    "tool-call-start": _Reader._call_start,
    "tool-call-delta": _Reader._call_delta,
    "tool-call-end": _Reader._call_end,
    "citation-start": _Reader._citation,
    "message-start": _Reader._message_start,
    "message-end": _Reader._message_end,
}
_SILENT = ("citation-end", "debug")
"""Events that say nothing about the answer."""

_KNOWN = (None, "text", "thinking")
"""Types of content that are read; a delta has none."""


def _entries(value: Any) -> list[dict[str, Any]]:
    """One object, or a list of them."""
    return [entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, dict)]


def _calls(event: Event) -> list[dict[str, Any]]:
    message = event.delta.message if event.delta is not None else None
    return _entries(message.tool_calls) if message is not None else []


def _function(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def _annotation(citation: dict[str, Any]) -> dict[str, Any]:
    """A citation in OpenAI's shape: of a page, where a source has an address; else of what the sources are."""
    sources = _entries(citation.get("sources"))
    documents = [document for source in sources if isinstance(document := source.get("document"), dict)]
    page = next((document for document in documents if isinstance(document.get("url"), str)), None)
    where = {"start_index": citation.get("start"), "end_index": citation.get("end"), "text": citation.get("text")}
    if page is not None:
        return {"type": "url_citation", **where, "url": page["url"], "title": page.get("title")}
    return {"type": "citation", **where, "sources": sources}


def _logprob(item: dict[str, Any]) -> dict[str, Any]:
    """That of a piece of text is the product of those of its tokens: the sum of their logarithms."""
    logs = item.get("logprobs")
    known = [log for log in logs if isinstance(log, int | float)] if isinstance(logs, list) else []
    return {"token": str(item.get("text") or ""), "logprob": sum(known), "top_logprobs": []}


# --- usage -----------------------------------------------------------------------------------------------------


def read_usage(raw: dict[str, Any]) -> Usage:
    """What the model read and wrote. What is billed is less, and no count of it: it stands in the details."""
    tokens, billed = raw.get("tokens"), raw.get("billed_units")
    tokens = tokens if isinstance(tokens, dict) else {}
    billed = billed if isinstance(billed, dict) else {}
    counted = {f"billed_{name}": _count(value) for name, value in billed.items()}
    return Usage(
        input_tokens=_count(tokens.get("input_tokens")),
        output_tokens=_count(tokens.get("output_tokens")),
        cache_read_tokens=_count(raw.get("cached_tokens")),
        details={name: value for name, value in counted.items() if value is not None},
    )


def _count(value: Any) -> int | None:
    """Counts are integers, which Cohere types as floats."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        return None
    return int(value)
