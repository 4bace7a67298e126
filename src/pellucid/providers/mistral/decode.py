"""Decode a Mistral answer into model events.

The type of content changes from chunk to chunk: a text, a list of typed chunks, a list with reasoning and text. Blocks
have no index and no end event, so consecutive content of one kind is one block; reasoning after text is a new block.
A block of reasoning also ends with the field `closed`, and after its signature.

References occur inside text and reasoning, and do not end the block. The references and their positions are stored
with the part (`provider_details["inserted"]`), so that it can be returned verbatim.
"""

from __future__ import annotations

from typing import Any

from ...emit import Key
from ...errors import ErrorInfo
from ...parts import FinishReason, Origin, Usage
from ..errors import error_from_value
from ..frame_template import SkipRule
from ..lenient_json import decode_lenient_json, dict_of, int_of
from ..profile import Profile
from ..stream_decoder import WireReader
from ..tagged_text import TEXT, TaggedText
from .chunk import Choice, Chunk, Delta, ToolCallReader, read_chunk

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "model_length": "length",
    "tool_calls": "tool_call",
    "content_filter": "content_filter",
    "error": "error",
}

_REFERENCE_TYPES = ("reference", "tool_reference")
"""Types of chunks that occur inside text."""


class _Block:
    """State of the open block that is needed to know where the next one begins."""

    __slots__ = ("inserted", "is_over", "is_thinking", "key", "length", "signature")

    def __init__(self, key: Key, *, is_thinking: bool) -> None:
        self.key = key
        self.is_thinking = is_thinking
        self.length = 0
        """Characters of text so far: the position of an insertion."""
        self.inserted: list[dict[str, Any]] = []
        self.signature: str | None = None
        self.is_over = False

    def count_text(self, text: str) -> None:
        self.length += len(text)

    def insert(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """Insert `chunk` at the current position, and return the part's new details."""
        self.inserted = [*self.inserted, {"at": self.length, "chunk": chunk}]
        return {"inserted": self.inserted}


class MistralReader(WireReader):
    wire = "Mistral chat"
    code = "not_mistral"
    frame_type = Chunk
    ignored_fields = (
        *("object", "created", "p"),
        *("choices[].delta.tool_calls[].type", "choices[].message.tool_calls[].type"),
    )

    def __init__(self, profile: Profile, origin: Origin) -> None:
        super().__init__(origin, profile.form)
        self._tagged_text = TaggedText(self.emit, profile)
        self._calls = ToolCallReader(self.emit)
        self._open_block: _Block | None = None
        self._last_text_block: _Block | None = None
        """The last block of text."""
        self._thinking_count = 0

    # --- frames ----------------------------------------------------------------------------------------------

    def read_frame(self, data: bytes, name: str) -> None:
        chunk = read_chunk(data)
        if chunk is None:
            self.fail_unreadable(data, name)
            return
        choices, emit = chunk.choices, self.emit
        # Every chunk repeats these two values; they are recorded once.
        if (emit.provider_response_id is None and chunk.id) or (emit.model_name is None and chunk.model):
            emit.start(chunk.id, chunk.model)
        if choices is not None:
            self.is_recognized = True
            for choice in choices:
                # The request is for one answer; a second choice would be another answer.
                if choice.index == 0:
                    self._read_choice(choice)
        if chunk.usage:
            emit.usage = read_usage(chunk.usage)
        if choices is None or chunk.error or name == "error":
            fault = _error_in(chunk, data, name)
            if fault is not None:
                self.fail(fault)

    def _add_thinking(self, block: _Block, text: str) -> None:
        """Add text of reasoning."""
        block.count_text(text)
        self.emit.thinking(block.key, text)
        self.skip_rule = SkipRule(on_skip=block.count_text)

    def flush(self) -> None:
        self._tagged_text.end()
        self._calls.flush()

    def end_normally(self) -> None:
        if not self.finished:
            self.emit.finish("tool_call" if self._calls.has_calls else "stop")

    def _read_choice(self, choice: Choice) -> None:
        logprobs = choice.logprobs.content if choice.logprobs is not None else None
        if choice.delta is not None:
            self._read_message(choice.delta, logprobs, is_whole=False)
        else:
            self.finished = True
            for message in choice.messages or ([choice.message] if choice.message is not None else []):
                self._read_message(message, logprobs, is_whole=True)
        if choice.finish_reason:
            self.finished = True
            self.emit.finish(FINISH_REASONS.get(choice.finish_reason), choice.finish_reason)

    def _read_message(self, delta: Delta, logprobs: list[dict[str, Any]] | None, *, is_whole: bool) -> None:
        content = delta.content
        if delta.role == "tool":
            # The result of a provider's own tool is not text of the answer.
            native = {"role": "tool", "tool_call_id": delta.tool_call_id, "content": content}
            self._emit_opaque("tool", {"message": native})
            return
        if content:
            if type(content) is str:
                self._add_text(content, logprobs)
            elif isinstance(content, list):
                for chunk in content:
                    self._read_chunk(chunk, logprobs if len(content) == 1 else None, is_whole)
        if delta.tool_calls:
            self._leave_block()
            for call in delta.tool_calls:
                self._calls.add_fragment(call)

    # --- content ---------------------------------------------------------------------------------------------

    def _read_chunk(self, chunk: Any, logprobs: list[dict[str, Any]] | None, is_whole: bool) -> None:
        if isinstance(chunk, str):
            self._add_text(chunk, logprobs)
        if not isinstance(chunk, dict):
            return
        kind = chunk.get("type")
        if kind == "thinking":
            self._read_thinking(chunk, is_whole)
        elif kind == "text":
            text = chunk.get("text")
            if text and isinstance(text, str):
                self._add_text(text, logprobs)
        elif kind in _REFERENCE_TYPES:
            self._add_reference(chunk)
        else:
            self._emit_opaque(kind if isinstance(kind, str) else "chunk", chunk)

    def _add_text(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        block = self._open_block
        if block is None or block.is_thinking:
            block = self._begin_block(is_thinking=False)
        block.count_text(text)
        self._tagged_text.feed(text, logprobs)
        rule = self._tagged_text.skip_rule
        if rule is not None:
            on_skip = rule.on_skip

            def on_skipped_text(text: str) -> None:
                block.count_text(text)
                if on_skip is not None:
                    on_skip(text)

            self.skip_rule = SkipRule(rule.needs_reading, on_skipped_text)

    def _read_thinking(self, chunk: dict[str, Any], is_whole: bool) -> None:
        inner, signature, is_closed = chunk.get("thinking"), chunk.get("signature"), chunk.get("closed") is True
        pieces = inner if isinstance(inner, list) else [inner] if inner else []
        signature = signature if signature and isinstance(signature, str) else None
        block = self._open_block
        begins_block = (
            block is None or not block.is_thinking or block.is_over or _follows_signature(block, pieces, signature)
        )
        # In a whole answer each chunk is a block; in a stream most are pieces of one.
        if block is None or begins_block or is_whole:
            if not (pieces or signature):
                return
            block = self._begin_block(is_thinking=True)
        for piece in pieces:
            text = _text_of(piece)
            if text:
                self._add_thinking(block, text)
            elif text is None:
                self.emit.thinking(block.key, details=block.insert(piece))
        if signature is not None and signature != block.signature:
            block.signature = signature
            self.emit.thinking(block.key, signature=signature)
        if is_closed:
            block.is_over = True
            if block.length or block.inserted or block.signature:
                self.emit.thinking(block.key, details={"closed": True})

    def _add_reference(self, chunk: dict[str, Any]) -> None:
        block = self._open_block
        if block is None or block.is_thinking:
            block = self._begin_block(is_thinking=False)
        self._tagged_text.pause()
        url, title = chunk.get("url"), chunk.get("title")
        citation = {
            "type": "url_citation",
            "url": url,
            "title": title,
            "start_index": block.length,
            "end_index": block.length,
        }
        annotations = [citation] if isinstance(url, str) else None
        self.emit.text(TEXT, details=block.insert(chunk), annotations=annotations)

    def _emit_opaque(self, kind: str, native: Any) -> None:
        self._leave_block()
        self.emit_opaque(kind, native)

    def _begin_block(self, *, is_thinking: bool) -> _Block:
        self._leave_block()
        if is_thinking:
            self._thinking_count += 1
            self._open_block = _Block(("thinking", self._thinking_count), is_thinking=True)
        else:
            # If the reasoning between had no content, the text part is still open, and is continued.
            previous = self._last_text_block if self.emit.is_open(TEXT) else None
            self._open_block = self._last_text_block = previous or _Block(TEXT, is_thinking=False)
        return self._open_block

    def _leave_block(self) -> None:
        """Leave the open block, because other content follows."""
        self.skip_rule = None
        if self._open_block is not None and not self._open_block.is_thinking:
            self._tagged_text.pause()
        self._open_block = None


def _text_of(piece: Any) -> str | None:
    """Return the text of a piece of reasoning; None for a chunk of another type."""
    if isinstance(piece, dict):
        text = piece.get("text")
        return text if piece.get("type", "text") == "text" and isinstance(text, str) else None
    return piece if isinstance(piece, str) else ""


def _follows_signature(block: _Block, pieces: list[Any], signature: str | None) -> bool:
    """Whether `block` already has its signature, and these pieces belong to the next block."""
    return block.signature is not None and block.length > 0 and bool(pieces) and signature != block.signature


def _error_in(chunk: Chunk, data: bytes, name: str) -> ErrorInfo | None:
    if chunk.error:
        return error_from_value({"error": chunk.error})
    if name == "error" or chunk.message or chunk.detail:
        return error_from_value(decode_lenient_json(data))
    return None


# --- usage -----------------------------------------------------------------------------------------------------


def read_usage(raw: dict[str, Any]) -> Usage:
    """Read token counts. Most answers have no count of reasoning tokens; then it is None."""
    prompt_details, completion_details = (
        dict_of(raw, "prompt_tokens_details"),
        dict_of(raw, "completion_tokens_details"),
    )
    cached_tokens = int_of(prompt_details, "cached_tokens")
    return Usage(
        input_tokens=int_of(raw, "prompt_tokens"),
        output_tokens=int_of(raw, "completion_tokens"),
        output_reasoning_tokens=int_of(completion_details, "reasoning_tokens"),
        cache_read_tokens=cached_tokens if cached_tokens is not None else int_of(raw, "num_cached_tokens"),
        input_audio_tokens=int_of(prompt_details, "audio_tokens"),
        details={name: raw[name] for name in raw if name not in _STANDARD_COUNTS and int_of(raw, name) is not None},
    )


# Counts that have a field of their own in `Usage`; the others keep their names in `details`.
_STANDARD_COUNTS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens", "num_cached_tokens"})
