"""Bytes of a Chat Completions answer to events: a stream chunk by chunk, or a whole body.

Within a chunk, reasoning comes first, then the provider's own tools, text, refusal, calls. Nothing on this wire says
that a block is over: the next one does, or the end.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ... import tags
from ...emit import Emitter
from ...errors import ErrorInfo, FrameTooLarge
from ...events import Cause, ModelEvent
from ...framing import SSEDecoder
from ...framing.sse import DEFAULT_LIMIT
from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart, FinishReason, Origin, Usage
from ..faults import fault_of_value
from ..profiles import Profile
from .chunk import Choice, Chunk, Delta, ToolCall, read_chunk
from .details import DetailsReader
from .merge import Merge, Told

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "error": "error",
    "network_error": "error",
    "insufficient_system_resource": "error",
}

REASONING, TEXT, REFUSAL = "reasoning", "text", "refusal"
"""The keys of the blocks that have no index on this wire."""


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> StreamDecoder | BodyDecoder:
    """The decoder for what the server says it sends: some answer a request for a stream with a whole body."""
    if content_type.partition(";")[0].strip().lower() == "application/json":
        return BodyDecoder(row, origin)
    return StreamDecoder(row, origin)


class StreamDecoder:
    """An SSE answer. Any bytes, cut anywhere, give a legal turn."""

    def __init__(self, row: Profile, origin: Origin, limit: int = DEFAULT_LIMIT) -> None:
        self._sse = SSEDecoder(limit)
        self._reader = _Reader(row, origin)
        self._done = False

    def feed(self, data: bytes) -> list[ModelEvent]:
        reader = self._reader
        try:
            for name, frame in self._sse.feed(data):
                if frame == b"[DONE]":
                    self._done = True
                else:
                    reader.frame(frame, is_error=name == "error")
        except FrameTooLarge as error:
            reader.emit.fail(error.info)
        return reader.emit.take()

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        reader = self._reader
        if cause == "eof" and not self._done and (self._sse.rest or not reader.finished):
            reader.flush()
            reader.emit.fail(TRUNCATED if reader.heard else EMPTY)
        return reader.end(cause, error)


class BodyDecoder:
    """A whole JSON answer."""

    def __init__(self, row: Profile, origin: Origin, limit: int = DEFAULT_LIMIT) -> None:
        self._reader = _Reader(row, origin)
        self._pieces: list[bytes] = []
        self._size = 0
        self._limit = limit

    def feed(self, data: bytes) -> list[ModelEvent]:
        self._size += len(data)
        if self._size <= self._limit:
            self._pieces.append(data)
        else:
            self._pieces = []
            self._reader.emit.fail(FrameTooLarge("the response body", self._limit).info)
        return self._reader.emit.take()

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        body = b"".join(self._pieces)
        self._pieces = []
        if cause == "eof" and not self._reader.emit.failed and not self._reader.ended:
            self._reader.frame(body)
            if not self._reader.heard and not self._reader.emit.failed:
                self._reader.emit.fail(_not_this_wire(body))
        return self._reader.end(cause, error)


TRUNCATED = ErrorInfo(
    kind="model_error",
    code="stream_truncated",
    message="the upstream's stream broke off: no finish reason and no [DONE] came before its end",
)


EMPTY = ErrorInfo(
    kind="model_error",
    code="empty_stream",
    message="the upstream's answer ended without a single Chat Completions event",
)


def _not_this_wire(data: bytes) -> ErrorInfo:
    start = data[:80].decode("utf-8", "replace")
    return ErrorInfo(
        kind="model_error",
        code="not_chat_completions",
        message=f"the upstream did not answer in Chat Completions JSON; what came begins with {start!r}",
    )


class _Reader:
    """The state of one answer, whichever way it is framed."""

    def __init__(self, row: Profile, origin: Origin) -> None:
        self.emit = Emitter(origin)
        self.finished = False
        self.heard = False
        self.ended = False
        self._row = row
        self._fields = row.reasoning_fields
        self._merge = Merge(row.merge, row.repeats)
        self._details = DetailsReader(self.emit, row)
        self._splitter = _splitter(row)
        self._tag: dict[str, Any] | None = None
        self._told = Told()
        """Reasoning that came in a sibling field, in case details or tags tell it again."""
        self._tool_ids: dict[int, tuple[str, int]] = {}
        self._unnamed: dict[object, tuple[str | None, list[str]]] = {}
        self._known: set[object] = set()
        """Calls, and their answers, that have been opened."""

    # --- frames ----------------------------------------------------------------------------------------------

    def frame(self, data: bytes, is_error: bool = False) -> None:
        chunk = read_chunk(data)
        if chunk is None:
            if data.strip():
                self.flush()
                self.emit.fail(fault_of_value(data.decode("utf-8", "replace")) if is_error else _not_this_wire(data))
            return
        choices = chunk.choices
        self.heard = self.heard or choices is not None or chunk.usage is not None
        if chunk.id or chunk.model:
            emit = self.emit
            # The same two strings come with every chunk; only news is passed on.
            if emit.provider_response_id is None or emit.model_name is None:
                emit.start(chunk.id or None, chunk.model or None)
        if choices:
            for choice in choices:
                # Only one answer was asked for; a second choice would be another answer.
                if choice.index == 0:
                    self._choice(choice)
        if chunk.usage is not None:
            self.emit.usage = read_usage(chunk.usage, self._row.reasoning_tokens)
        if chunk.error or chunk.x_groq or chunk.base_resp or is_error:
            self._aside(chunk, data, is_error)

    def _aside(self, chunk: Chunk, data: bytes, is_error: bool) -> None:
        """What stands beside the choices: errors in their several places, Groq's second usage."""
        groq = chunk.x_groq or {}
        if chunk.usage is None and isinstance(groq.get("usage"), dict):
            self.emit.usage = read_usage(groq["usage"], self._row.reasoning_tokens)
        status = (chunk.base_resp or {}).get("status_code")
        fault = chunk.error or groq.get("error") or (chunk.base_resp if status else None)
        if fault or is_error:
            self.flush()
            self.emit.fail(fault_of_value({"error": fault} if fault else msgspec.json.decode(data)))

    def flush(self) -> None:
        """Let go of what was held back because it could have become a marker or a name."""
        if self._splitter is not None:
            self._spans(self._splitter.end())
            self._splitter = None
        for key, (call_id, pieces) in self._unnamed.items():
            self.emit.tool_call(key, "".join(pieces), name="", call_id=call_id)
        self._unnamed = {}

    def end(self, cause: Cause, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if not self.ended:
            self.ended = True
            self.flush()
            if cause == "eof" and not self.finished and not self.emit.failed:
                # Some servers end without a reason (Snowflake). What they did says it.
                self.emit.finish("tool_call" if self._tool_ids else "stop")
        return self.emit.end(cause, error)

    # --- one choice ------------------------------------------------------------------------------------------

    def _choice(self, choice: Choice) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            self._reasoning(delta)
            if delta.executed_tools:
                self._executed(delta.executed_tools)
            content = delta.content
            if content:
                logprobs = choice.logprobs.content if choice.logprobs is not None else None
                if type(content) is str:
                    self._text(content, logprobs)
                elif isinstance(content, list):
                    self._content_parts(content)
            if delta.annotations:
                self.emit.text(TEXT, annotations=delta.annotations)
            if delta.refusal:
                self.emit.refusal(REFUSAL, delta.refusal)
            if delta.tool_calls:
                self._let_go_of_tail()
                for position, call in enumerate(delta.tool_calls):
                    self._tool_call(call, position)
            if delta.function_call is not None:
                self._tool_call(ToolCall(index=0, function=delta.function_call), 0)
        if choice.finish_reason:
            self.finished = True
            self.emit.finish(
                FINISH_REASONS.get(choice.finish_reason), choice.native_finish_reason or choice.finish_reason
            )

    def _reasoning(self, delta: Delta) -> None:
        if delta.reasoning_details:
            # The sibling field repeats what the details say: it is not read where there are details.
            self._details.read(delta.reasoning_details, self._told.text())
            return
        for field in self._fields:
            text = getattr(delta, field, None)
            if text and type(text) is str:
                text = self._merge.next(text)
                if text:
                    self._told.add(text)
                    self.emit.thinking(REASONING, text)
                break
        if delta.reasoning_opaque:
            self.emit.thinking(REASONING, signature=delta.reasoning_opaque)

    def _text(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        if self._splitter is None:
            self.emit.text(TEXT, text, logprobs=logprobs)
        else:
            self._spans(self._splitter.feed(text), logprobs)

    def _spans(self, spans: list[tags.Span], logprobs: list[dict[str, Any]] | None = None) -> None:
        """What the tag splitter made of the content. The markers are kept with the part, for a verbatim replay."""
        for kind, text in spans:
            if kind == "text":
                self.emit.text(TEXT, text, logprobs=logprobs)
            elif kind == "thinking":
                self.emit.thinking(REASONING, self._told.news(text))
            elif kind == "open":
                self._tag = {"open": text}
            elif kind == "close" and self._tag is not None:
                self.emit.thinking(REASONING, details={**self._tag, "close": text})
                self._tag = None

    def _let_go_of_tail(self) -> None:
        """A call follows: text held back as a possible marker will not become one."""
        if self._splitter is not None:
            self._spans(self._splitter.pause())

    def _content_parts(self, content: list[Any]) -> None:
        """Content as a list of typed parts, as Mistral and some compatible servers write it."""
        for entry in content:
            if not isinstance(entry, dict):
                continue
            text = entry.get("text")
            if entry.get("type") == "thinking":
                inner = entry.get("thinking")
                pieces = inner if isinstance(inner, list) else [{"text": inner}]
                text = "".join(p["text"] for p in pieces if isinstance(p, dict) and isinstance(p.get("text"), str))
                self.emit.thinking(REASONING, text)
            elif isinstance(text, str):
                self._text(text)

    # --- calls -----------------------------------------------------------------------------------------------

    def _tool_call(self, call: ToolCall, position: int) -> None:
        function = call.function
        name = (function.name or None) if function is not None else None
        args = (function.arguments if function is not None else None) or ""
        key = self._tool_key(call, position, name)
        signature = _google_signature(call.extra_content)
        if key not in self._known:
            call_id, pieces = self._unnamed.pop(key, (None, []))
            call_id = call.id or call_id
            if name is None:
                # Nothing can open before the function has a name.
                pieces.append(args if isinstance(args, str) else msgspec.json.encode(args).decode())
                self._unnamed[key] = (call_id, pieces)
                return
            self._known.add(key)
            if pieces and isinstance(args, str):
                args = "".join(pieces) + args
            self.emit.tool_call(key, args, name=name, call_id=call_id, signature=signature)
        elif args or signature:
            self.emit.tool_call(key, args, signature=signature)

    def _tool_key(self, call: ToolCall, position: int, name: str | None) -> object:
        """Which call this is about. Some servers number every call 0, and tell them apart by their ids."""
        index = call.index if call.index is not None else position
        if call.index is None and call.id is None and name is None and self._tool_ids:
            index = max(self._tool_ids)
        known, generation = self._tool_ids.get(index, (call.id or "", 0))
        if call.id and known and call.id != known and name:
            generation += 1
        self._tool_ids[index] = (call.id or known, generation)
        return ("call", index, generation)

    def _executed(self, tools: list[dict[str, Any]]) -> None:
        """Groq's compound models run tools themselves, and report each twice: asked, then answered."""
        provider = self.emit.origin.provider
        for tool in tools:
            index, kind = tool.get("index"), str(tool.get("type") or "tool")
            name = {"search": "web_search"}.get(kind, kind)
            key = ("executed", index)
            call_id = f"executed_{index}"
            if key not in self._known:
                self._known.add(key)
                arguments = tool.get("arguments")
                self.emit.whole(
                    BuiltinToolCallPart(name, arguments or None, call_id, provider_name=provider),
                    item=key,
                )
            found = tool.get("search_results")
            results = found if isinstance(found, dict) and found.get("results") else tool.get("output")
            answered = ("answered", index)
            if results and answered not in self._known:
                self._known.add(answered)
                self.emit.whole(
                    BuiltinToolReturnPart(name, results, call_id, provider_name=provider),
                    item=key,
                )


def _splitter(row: Profile) -> tags.Splitter | None:
    if row.tags is None:
        return None
    return tags.Splitter(tags.FAMILIES[row.tags], implicit_start=row.implicit_start)


def _google_signature(extra: dict[str, Any] | None) -> str | None:
    google = (extra or {}).get("google")
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) else None


# --- usage -----------------------------------------------------------------------------------------------------


def read_usage(raw: dict[str, Any], counted: Literal["inside", "outside", "by_total"] = "inside") -> Usage:
    """Token counts. `details` keeps what else the provider counted, under its own names."""
    prompt, completion, total = (_int(raw, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
    of_prompt, of_completion = _dict(raw, "prompt_tokens_details"), _dict(raw, "completion_tokens_details")
    reasoning = _first(_int(of_completion, "reasoning_tokens"), _int(raw, "reasoning_tokens"))
    output = completion
    if completion is not None and reasoning:
        beside = counted == "by_total" and prompt is not None and total == prompt + completion + reasoning
        if counted == "outside" or beside:
            output = completion + reasoning
    details = {
        name: int(value)
        for name, value in (*raw.items(), *of_completion.items())
        if isinstance(value, int) and name not in _STANDARD
    }
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        output_reasoning_tokens=reasoning,
        cache_read_tokens=_first(
            _int(of_prompt, "cached_tokens"), _int(raw, "cached_tokens"), _int(raw, "prompt_cache_hit_tokens")
        ),
        cache_write_tokens=_int(of_prompt, "cache_write_tokens"),
        input_audio_tokens=_int(of_prompt, "audio_tokens"),
        output_audio_tokens=_int(of_completion, "audio_tokens"),
        details=details,
    )


# Counts that have a field of their own; the others keep their own names in `details`.
_STANDARD = frozenset({"prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"})


def _int(raw: dict[str, Any], name: str) -> int | None:
    value = raw.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _dict(raw: dict[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
