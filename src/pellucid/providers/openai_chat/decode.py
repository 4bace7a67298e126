"""Bytes of a Chat Completions answer to events: a stream chunk by chunk, or a whole body.

Within a chunk, reasoning comes first, then the provider's own tools, text, refusal, calls. Nothing on this wire says
that a block is over: the next one does, or the end.
"""

from __future__ import annotations

from typing import Any

from ...framing.sse import DEFAULT_LIMIT
from ...parts import FinishReason, OpaquePart, Origin
from ..answer import AnswerDecoder, EventFrames, Reader
from ..faults import fault_of_value
from ..fitting import loose_json
from ..frame_template import WORD, SkipRule, unread
from ..profile import Profile
from ..tagged import TEXT
from .calls import CallsReader
from .chunk import Choice, Chunk, Delta, ToolCall, read_chunk, read_usage
from .content import REASONING, Content, Merge, Told, content_reader
from .details import DetailsReader

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


def decoder(
    row: Profile, origin: Origin, content_type: str = "text/event-stream", limit: int = DEFAULT_LIMIT
) -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte; the header is sometimes wrong."""
    return AnswerDecoder(_Reader(row, origin), EventFrames(limit))


class _Reader(Reader):
    wire = "Chat Completions"
    code = "not_chat_completions"
    unread = (unread(b"obfuscation", WORD),)

    def __init__(self, row: Profile, origin: Origin) -> None:
        super().__init__(origin)
        self._row = row
        self._fields = row.reasoning_fields
        plain = row.merge == "incremental" and row.repeats == "keep"
        self._merge = None if plain else Merge(row.merge, row.repeats)
        self._details = DetailsReader(self.emit, row)
        self._told = Told(self.emit, REASONING)
        """Reasoning that came in a sibling field, in case details or tags tell it again."""
        self._content: Content = content_reader(row, self.emit, self._told)
        self._paused = True
        """Whether nothing of the content is held back."""
        self._calls = CallsReader(self.emit)
        self._streamed = False
        self._index: int | None = None
        """Which choice is read: the first that comes, which nearly everybody numbers 0."""

    # --- frames ----------------------------------------------------------------------------------------------

    def frame(self, data: bytes, name: str) -> None:
        chunk, is_error = read_chunk(data), name == "error"
        if chunk is None:
            if is_error:
                self.fail(fault_of_value(data.decode("utf-8", "replace")))
            elif data.strip():
                self.refuse(data)
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

    def flush(self) -> None:
        """Let go of what was held back because it could have become a marker or a name."""
        self._content.end()
        self._calls.flush()

    def settle(self) -> None:
        if self.emit.native_finish_reason is None:
            # Some servers end without a reason (Snowflake). What they did says it.
            self.emit.finish("tool_call" if self._calls.any else "stop")

    # --- one choice ------------------------------------------------------------------------------------------

    def _choice(self, choice: Choice) -> None:
        delta = choice.delta
        whole = delta is None
        if whole:
            # A body; or, at the end of a stream, all of the answer once more (MiniMax, Perplexity).
            delta = None if self._streamed else choice.message
            self.finished = True
        else:
            self._streamed = True
        if delta is not None:
            self._reasoning(delta, whole)
            if delta.executed_tools:
                self._pause()
                self._calls.read_executed(delta.executed_tools)
            content = delta.content
            if content:
                if type(content) is str:
                    self._say(content, choice.logprobs.content if choice.logprobs is not None else None)
                elif isinstance(content, list):
                    self._content_parts(content)
            if delta.annotations:
                self.emit.text(TEXT, annotations=delta.annotations)
            if delta.refusal:
                self._pause()
                self.emit.refusal(REFUSAL, delta.refusal)
            calls = delta.tool_calls or []
            if delta.function_call is not None:
                calls = [*calls, ToolCall(index=0, function=delta.function_call)]
            if calls:
                self._pause()
                for call in calls:
                    self._calls.read(call)
            if delta.reasoning_details or delta.executed_tools:
                self.skip_rule = None
        if choice.finish_reason:
            self.finished = True
            self.emit.finish(
                FINISH_REASONS.get(choice.finish_reason), choice.native_finish_reason or choice.finish_reason
            )

    def _reasoning(self, delta: Delta, whole: bool) -> None:
        details = delta.reasoning_details
        if details:
            self._pause()
            if self._details.read(details, self._told.left(), whole=whole):
                # The sibling field repeats what the details say.
                return
        for field in self._fields:
            text = getattr(delta, field, None)
            if text and type(text) is str:
                if self._merge is not None:
                    text = self._merge.next(text)
                if text:
                    self._think(text)
                break
        if delta.reasoning_opaque:
            self.emit.thinking(REASONING, signature=delta.reasoning_opaque)

    def _think(self, text: str) -> None:
        if not self._paused:
            self._pause()
        self._told.twice = True
        self.emit.thinking(REASONING, text)
        if self._merge is None:
            self.skip_rule = SkipRule()

    def _say(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        self._paused = False
        self._content.feed(text, logprobs)
        # What is told a second time is not emitted as it comes.
        repeats = self._told.twice and self.emit.is_open(REASONING)
        self.skip_rule = None if repeats else self._content.skip_rule

    def _pause(self) -> None:
        """Something else than content follows."""
        self.skip_rule = None
        self._content.pause()
        self._paused = True

    def _content_parts(self, content: list[Any]) -> None:
        """Content as a list of typed parts, as Mistral and some compatible servers write it."""
        self.skip_rule = None
        for entry in content:
            entry = {"type": "text", "text": entry} if isinstance(entry, str) else entry
            if not isinstance(entry, dict):
                continue
            kind, text = entry.get("type"), entry.get("text")
            if kind == "thinking":
                inner = entry.get("thinking")
                pieces = inner if isinstance(inner, list) else [{"text": inner}]
                text = "".join(p["text"] for p in pieces if isinstance(p, dict) and isinstance(p.get("text"), str))
                self._pause()
                self.emit.thinking(REASONING, text, signature=entry.get("signature") or None)
            elif isinstance(text, str):
                self._paused = False
                self._content.feed(text)
            elif isinstance(kind, str):
                self._pause()
                self.emit.whole(OpaquePart(kind, entry, provider_name=self.emit.origin.provider))
