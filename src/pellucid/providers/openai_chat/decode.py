"""Bytes of a Chat Completions answer to events: a stream chunk by chunk, or a whole body.

Within a chunk, reasoning comes first, then the provider's own tools, text, refusal, calls. Nothing on this wire says
that a block is over: the next one does, or the end.
"""

from __future__ import annotations

from typing import Any

from ...emit import Emitter
from ...errors import ErrorInfo, FrameTooLarge
from ...events import Cause, ModelEvent
from ...framing import SSEDecoder
from ...framing.sse import DEFAULT_LIMIT
from ...parts import FinishReason, OpaquePart, Origin
from ..faults import fault_of_value
from ..loose import loose_json
from ..profiles import Profile
from .calls import CallsReader
from .chunk import Choice, Chunk, Delta, ToolCall, read_chunk
from .content import REASONING, TEXT, Content, PlainContent, content_reader
from .details import DetailsReader
from .merge import Merge, Told
from .usage import read_usage

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

REFUSAL = "refusal"


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte; the header is sometimes wrong."""
    return AnswerDecoder(row, origin)


class AnswerDecoder:
    """A stream or a body, as it turns out: some servers answer a request for a stream with a body, or an HTML page."""

    def __init__(self, row: Profile, origin: Origin, limit: int = DEFAULT_LIMIT) -> None:
        self._how = (row, origin, limit)
        self._chosen: StreamDecoder | BodyDecoder | None = None
        self._blank = b""

    @property
    def done(self) -> bool:
        return isinstance(self._chosen, StreamDecoder) and self._chosen.done

    def feed(self, data: bytes) -> list[ModelEvent]:
        if self._chosen is None:
            data = self._blank + data
            first = data.lstrip()[:1]
            if not first and len(data) < 1024:
                self._blank = data
                return []
            self._chosen = BodyDecoder(*self._how) if first in (b"{", b"[", b"<") else StreamDecoder(*self._how)
            self.feed = self._chosen.feed  # type: ignore[method-assign]  # from now on without this detour
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
        self.done = False
        """Whether `[DONE]` came."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        reader = self._reader
        try:
            for name, frame in self._sse.feed(data):
                if frame == b"[DONE]" or self.done:
                    self.done = True  # and nothing counts that follows it
                else:
                    reader.frame(frame, is_error=name == "error")
        except FrameTooLarge as error:
            reader.fail(error.info)
        return reader.emit.take()

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        reader = self._reader
        if cause == "eof" and not reader.ended:
            self._last_frame()
            if not self.done and not reader.finished:
                reader.fail(TRUNCATED if reader.heard else EMPTY)
        return reader.end(cause, error)

    def _last_frame(self) -> None:
        """A last event without its blank line counts if it is whole: JSON itself shows that."""
        if not self._sse.rest:
            return
        try:
            for name, frame in self._sse.feed(b"\n\n"):
                if frame == b"[DONE]":
                    self.done = True
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


class _Reader:
    """The state of one answer, whichever way it is framed."""

    def __init__(self, row: Profile, origin: Origin) -> None:
        self.emit = Emitter(origin)
        self.finished = False
        self.heard = False
        self.ended = False
        self._row = row
        self._fields = row.reasoning_fields
        plain = row.merge == "incremental" and row.repeats == "keep"
        self._merge = None if plain else Merge(row.merge, row.repeats)
        self._details = DetailsReader(self.emit, row)
        self._told = Told()
        """Reasoning that came in a sibling field, in case details or tags tell it again."""
        self._content: Content = content_reader(row, self.emit, self._told)
        self._calls = CallsReader(self.emit)
        self._streamed = False
        self._index: int | None = None
        """Which choice is read: the first that comes, which nearly everybody numbers 0."""

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
                if self._index is None:
                    self._index = choice.index
                if choice.index == self._index:
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
        self._content.end()
        self._content = PlainContent(self.emit)
        self._calls.flush()

    def end(self, cause: Cause, error: ErrorInfo | None = None) -> list[ModelEvent]:
        if not self.ended:
            self.ended = True
            self.flush()
            if cause == "eof" and not self.finished and not self.emit.failed:
                # Some servers end without a reason (Snowflake). What they did says it.
                self.emit.finish("tool_call" if self._calls.any else "stop")
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
                self._content.pause()
                self._calls.read_executed(delta.executed_tools)
            content = delta.content
            if content:
                if choice.logprobs is not None and choice.logprobs.content:
                    self._content.note(choice.logprobs.content)
                if type(content) is str:
                    self._content.feed(content)
                elif isinstance(content, list):
                    self._content_parts(content)
            if delta.annotations:
                self.emit.text(TEXT, annotations=delta.annotations)
            if delta.refusal:
                self._content.pause()
                self.emit.refusal(REFUSAL, delta.refusal)
            if delta.tool_calls:
                self._content.pause()
                for call in delta.tool_calls:
                    self._calls.read(call)
            if delta.function_call is not None:
                self._content.pause()
                self._calls.read(ToolCall(index=0, function=delta.function_call))
        if choice.finish_reason:
            self.finished = True
            self.emit.finish(
                FINISH_REASONS.get(choice.finish_reason), choice.native_finish_reason or choice.finish_reason
            )

    def _reasoning(self, delta: Delta, whole: bool) -> None:
        details = delta.reasoning_details
        if details:
            self._content.pause()
            if self._details.read(details, self._told.text(), whole=whole):
                # The sibling field repeats what the details say.
                return
        for field in self._fields:
            text = getattr(delta, field, None)
            if text and type(text) is str:
                if self._merge is not None:
                    text = self._merge.next(text)
                if text:
                    self._content.pause()
                    self._told.add(text)
                    self.emit.thinking(REASONING, text)
                break
        if delta.reasoning_opaque:
            self.emit.thinking(REASONING, signature=delta.reasoning_opaque)

    def _content_parts(self, content: list[Any]) -> None:
        """Content as a list of typed parts, as Mistral and some compatible servers write it."""
        for entry in content:
            if isinstance(entry, str):
                self._content.feed(entry)
            if not isinstance(entry, dict):
                continue
            kind, text = entry.get("type"), entry.get("text")
            if kind == "thinking":
                inner = entry.get("thinking")
                pieces = inner if isinstance(inner, list) else [{"text": inner}]
                text = "".join(p["text"] for p in pieces if isinstance(p, dict) and isinstance(p.get("text"), str))
                self.emit.thinking(REASONING, text, signature=entry.get("signature") or None)
            elif isinstance(text, str):
                self._content.feed(text)
            elif isinstance(kind, str):
                self._content.pause()
                self.emit.whole(OpaquePart(kind, entry, provider_name=self.emit.origin.provider))


def _gave_up(reason: str | None) -> ErrorInfo:
    return ErrorInfo("model_error", f"the upstream gave up without saying why (finish reason {reason!r})", code=reason)
