"""Bytes of a Chat Completions answer to events: a stream chunk by chunk, or a whole body.

Within a chunk, reasoning comes first, then the provider's own tools, text, refusal, calls. Nothing on this wire says
that a block is over: the next one does, or the end.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ... import tags
from ...emit import Emitter, Key
from ...errors import ErrorInfo, FrameTooLarge
from ...events import Cause, ModelEvent
from ...framing import SSEDecoder
from ...framing.sse import DEFAULT_LIMIT
from ...parts import BuiltinToolCallPart, BuiltinToolReturnPart, FinishReason, OpaquePart, Origin, Usage
from ..faults import fault_of_value
from ..loose import REFUSED, loose_json
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


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte; the header is sometimes wrong."""
    return AnswerDecoder(row, origin)


class AnswerDecoder:
    """A stream or a body, as it turns out: some servers answer a request for a stream with a body, or an HTML page."""

    def __init__(self, row: Profile, origin: Origin, limit: int = DEFAULT_LIMIT) -> None:
        self._how = (row, origin, limit)
        self._chosen: StreamDecoder | BodyDecoder | None = None
        self._blank = b""

    def feed(self, data: bytes) -> list[ModelEvent]:
        if self._chosen is None:
            data = self._blank + data
            first = data.lstrip()[:1]
            if not first and len(data) < 1024:
                self._blank = data
                return []
            self._chosen = BodyDecoder(*self._how) if first in (b"{", b"[", b"<") else StreamDecoder(*self._how)
        return self._chosen.feed(data)

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        if self._chosen is None:
            self._chosen = StreamDecoder(*self._how)
        return self._chosen.end(cause, error)


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
            reader.fail(error.info)
        return reader.emit.take()

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        reader = self._reader
        if cause == "eof" and not reader.ended:
            self._last_frame()
            if not self._done and not reader.finished:
                reader.fail(TRUNCATED if reader.heard else EMPTY)
        return reader.end(cause, error)

    def _last_frame(self) -> None:
        """A last event without its blank line counts if it is whole: JSON itself shows that."""
        if not self._sse.rest:
            return
        try:
            for name, frame in self._sse.feed(b"\n\n"):
                if frame == b"[DONE]":
                    self._done = True
                elif read_chunk(frame) is not None:
                    self._reader.frame(frame, is_error=name == "error")
        except FrameTooLarge as error:
            self._reader.fail(error.info)


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
            self._reader.fail(FrameTooLarge("the response body", self._limit).info)
        return self._reader.emit.take()

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        reader = self._reader
        body = b"".join(self._pieces)
        self._pieces = []
        if cause == "eof" and not reader.ended:
            reader.frame(body)
            if not reader.heard:
                reader.fail(_not_this_wire(body) if body.strip() else EMPTY)
        return reader.end(cause, error)


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


class _Call:
    """A function call as it comes."""

    __slots__ = ("id", "key", "named", "pieces")

    def __init__(self, key: Key, id: str | None) -> None:
        self.key = key
        self.id = id
        self.named = False
        self.pieces: list[str] = []
        """The arguments so far."""


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
        self._answered = False
        self._tail = False
        """Whether answer text may be held back in the splitter: not the white space before an answer."""
        self._logprobs: list[dict[str, Any]] | None = None
        self._told = Told()
        """Reasoning that came in a sibling field, in case details or tags tell it again."""
        self._streamed = False
        self._calls: dict[int, list[_Call]] = {}
        """Under each index its calls: servers that number every call 0 tell them apart by their ids."""
        self._last_call: _Call | None = None
        self._executions: set[Key] = set()

    # --- frames ----------------------------------------------------------------------------------------------

    def frame(self, data: bytes, is_error: bool = False) -> None:
        chunk = read_chunk(data)
        if chunk is None:
            if data.strip():
                self.fail(fault_of_value(data.decode("utf-8", "replace")) if is_error else _not_this_wire(data))
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
        if chunk.usage:
            self.emit.usage = read_usage(chunk.usage, self._row.reasoning_tokens)
        if chunk.error or chunk.x_groq or chunk.base_resp or is_error or choices is None:
            self._aside(chunk, data, is_error)

    def _aside(self, chunk: Chunk, data: bytes, is_error: bool) -> None:
        """What stands beside the choices, or in their place: errors in their several forms, Groq's second usage."""
        groq = chunk.x_groq or {}
        if not chunk.usage and isinstance(groq.get("usage"), dict):
            self.emit.usage = read_usage(groq["usage"], self._row.reasoning_tokens)
        status = (chunk.base_resp or {}).get("status_code")
        fault = chunk.error or groq.get("error") or (chunk.base_resp if status else None)
        if fault:
            self.fail(fault_of_value({"error": fault}))
        elif is_error or (chunk.choices is None and (chunk.message or chunk.detail)):
            self.fail(fault_of_value(loose_json(data)))

    def fail(self, error: ErrorInfo) -> None:
        """The answer broke: let go of what was held back, then say so."""
        self.flush()
        self.emit.fail(error)

    def flush(self) -> None:
        """Let go of what was held back because it could have become a marker or a name."""
        if self._splitter is not None:
            self._spans(self._splitter.end())
            self._splitter = None
        for calls in self._calls.values():
            for call in calls:
                if not call.named:
                    call.named = True
                    self.emit.tool_call(call.key, "".join(call.pieces), name="", call_id=call.id)

    def end(self, cause: Cause, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if not self.ended:
            self.ended = True
            self.flush()
            if cause == "eof" and not self.finished and not self.emit.failed:
                # Some servers end without a reason (Snowflake). What they did says it.
                self.emit.finish("tool_call" if self._calls else "stop")
            if cause == "eof" and self.emit.finish_reason == "error":
                # An error that came without a word of explanation; with one, this is ignored.
                self.emit.fail(_gave_up(self.emit.native_finish_reason))
        return self.emit.end(cause, error)

    # --- one choice ------------------------------------------------------------------------------------------

    def _choice(self, choice: Choice) -> None:
        delta = choice.delta
        whole = delta is None
        if whole:
            # A body; or, at the end of a stream, all of the answer once more (MiniMax, Perplexity).
            delta = None if self._streamed else choice.message
        else:
            self._streamed = True
        if delta is not None:
            self._reasoning(delta, whole)
            if delta.executed_tools:
                self._executed(delta.executed_tools)
            content = delta.content
            if content:
                if choice.logprobs is not None and choice.logprobs.content:
                    self._logprobs = (self._logprobs or []) + choice.logprobs.content
                if type(content) is str:
                    self._text(content)
                elif isinstance(content, list):
                    self._content_parts(content)
            if delta.annotations:
                self.emit.text(TEXT, annotations=delta.annotations)
            if delta.refusal:
                self._let_go_of_tail()
                self.emit.refusal(REFUSAL, delta.refusal)
            if delta.tool_calls:
                self._let_go_of_tail()
                for call in delta.tool_calls:
                    self._tool_call(call)
            if delta.function_call is not None:
                self._let_go_of_tail()
                self._tool_call(ToolCall(index=0, function=delta.function_call))
        if choice.finish_reason:
            self.finished = True
            self.emit.finish(
                FINISH_REASONS.get(choice.finish_reason), choice.native_finish_reason or choice.finish_reason
            )

    def _reasoning(self, delta: Delta, whole: bool) -> None:
        details = delta.reasoning_details
        if details:
            self._let_go_of_tail()
            if self._details.read(details, self._told.text(), whole=whole):
                # The sibling field repeats what the details say.
                return
        for field in self._fields:
            text = getattr(delta, field, None)
            if text and type(text) is str:
                text = self._merge.next(text)
                if text:
                    if self._tail:
                        self._let_go_of_tail()
                    self._told.add(text)
                    self.emit.thinking(REASONING, text)
                break
        if delta.reasoning_opaque:
            self.emit.thinking(REASONING, signature=delta.reasoning_opaque)

    def _text(self, text: str) -> None:
        if self._splitter is None:
            self.emit.text(TEXT, text, logprobs=self._logprobs)
            self._logprobs = None
        else:
            self._spans(self._splitter.feed(text))
            self._tail = self._answered

    def _spans(self, spans: list[tags.Span]) -> None:
        """What the tag splitter made of the content. The markers are kept with the part, for a verbatim replay."""
        for kind, text in spans:
            if kind == "text":
                self._answered = True
                self.emit.text(TEXT, text, logprobs=self._logprobs)
                self._logprobs = None
            elif kind == "thinking":
                self.emit.thinking(REASONING, self._told.news(text))
            elif kind == "open":
                self._tag = {"open": text}
            elif kind == "close" and self._tag is not None:
                self.emit.thinking(REASONING, details={**self._tag, "close": text})
                self._tag = None

    def _let_go_of_tail(self) -> None:
        """Something else follows: text held back as a possible marker will not become one, and stands before it."""
        if self._splitter is not None and self._tail:
            self._spans(self._splitter.pause())
            self._tail = False

    def _content_parts(self, content: list[Any]) -> None:
        """Content as a list of typed parts, as Mistral and some compatible servers write it."""
        for entry in content:
            if isinstance(entry, str):
                self._text(entry)
            if not isinstance(entry, dict):
                continue
            kind, text = entry.get("type"), entry.get("text")
            if kind == "thinking":
                inner = entry.get("thinking")
                pieces = inner if isinstance(inner, list) else [{"text": inner}]
                text = "".join(p["text"] for p in pieces if isinstance(p, dict) and isinstance(p.get("text"), str))
                self.emit.thinking(REASONING, text, signature=entry.get("signature") or None)
            elif isinstance(text, str):
                self._text(text)
            elif isinstance(kind, str):
                self._let_go_of_tail()
                self.emit.whole(OpaquePart(kind, entry, provider_name=self.emit.origin.provider))

    # --- calls -----------------------------------------------------------------------------------------------

    def _tool_call(self, fragment: ToolCall) -> None:
        function = fragment.function
        name = (function.name or None) if function is not None else None
        args = function.arguments if function is not None else None
        if not isinstance(args, dict) or not args:
            args = _json_text(args)
        signature = _google_signature(fragment.extra_content)
        if not (name or args or fragment.id or signature):
            return
        call = self._call_of(fragment, name)
        if call.id is None:
            call.id = fragment.id or None
        if call.named:
            if args or signature:
                self.emit.tool_call(call.key, args, signature=signature)
        elif name is not None:
            # Nothing can open before the function has a name: what came earlier is told now.
            call.named = True
            if call.pieces:
                args = "".join(call.pieces) + _json_text(args)
            self.emit.tool_call(call.key, args, name=name, call_id=call.id, signature=signature)
            call.pieces = []
        if args:
            call.pieces.append(_json_text(args))

    def _call_of(self, fragment: ToolCall, name: str | None) -> _Call:
        """Which call this is about, or a new one."""
        id, index = fragment.id or None, fragment.index
        if id is not None and (call := self._known_by(id, index)) is not None:
            self._last_call = call
            return call
        if index is None and id is None and name is None and self._last_call is not None:
            return self._last_call
        # A call without an index gets one that no server uses.
        calls = self._calls.setdefault(-1 - len(self._calls) if index is None else index, [])
        if calls and not _begins_another(calls[-1], id, name):
            call = calls[-1]
        else:
            call = _Call(("call", index, len(self._calls), len(calls)), id)
            calls.append(call)
        self._last_call = call
        return call

    def _known_by(self, id: str, index: int | None) -> _Call | None:
        groups = self._calls.values() if index is None else [self._calls.get(index, [])]
        return next((call for calls in groups for call in calls if call.id == id), None)

    def _executed(self, tools: list[dict[str, Any]]) -> None:
        """Groq's compound models run tools themselves, and report each twice: asked, then answered."""
        provider = self.emit.origin.provider
        for tool in tools:
            index, kind = str(tool.get("index")), str(tool.get("type") or "tool")
            name = {"search": "web_search"}.get(kind, kind)
            key = ("executed", index)
            call_id = f"executed_{index}"
            if key not in self._executions:
                self._executions.add(key)
                arguments = tool.get("arguments")
                self.emit.whole(
                    BuiltinToolCallPart(
                        name,
                        arguments if isinstance(arguments, dict) else _json_text(arguments) or None,
                        call_id,
                        provider_name=provider,
                    ),
                    item=key,
                )
            found = tool.get("search_results")
            results = found if isinstance(found, dict) and found.get("results") else tool.get("output")
            answered = ("answered", index)
            if results and answered not in self._executions:
                self._executions.add(answered)
                self.emit.whole(
                    BuiltinToolReturnPart(name, results, call_id, provider_name=provider),
                    item=key,
                )


def _begins_another(call: _Call, id: str | None, name: str | None) -> bool:
    """Whether a fragment under the index of `call`, but not under its id, is another call's.

    Some servers repeat the name with every fragment, some make up an id for every fragment, some number every
    call 0: only what has a name can begin a call, and it does if it has another id, or the call is whole already.
    """
    if name is None or not call.named:
        return False
    if id is not None and call.id is not None:
        return True
    return _is_json("".join(call.pieces))


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except REFUSED:
        return False
    return True


def _json_text(args: Any) -> str:
    """Arguments as JSON text, which they mostly are already; nothing at all is no text yet."""
    if isinstance(args, str):
        return args
    return "" if args is None else msgspec.json.encode(args).decode()


def _gave_up(reason: str | None) -> ErrorInfo:
    return ErrorInfo("model_error", f"the upstream gave up without saying why (finish reason {reason!r})", code=reason)


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
        if isinstance(value, int) and not isinstance(value, bool) and name not in _STANDARD
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
