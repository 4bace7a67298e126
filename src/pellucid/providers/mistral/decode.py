"""Bytes of a Mistral answer to events.

Content changes its type from chunk to chunk: a text, a list of typed chunks, a list with thought and text together.
Blocks have no index and no end, so neighbours of one kind are one block; thought that comes back after text is a new
block in its true place. A block of thought also ends where it says so itself (`closed`), and behind its signature.

References stand inside text and thought. They do not break it: what was inserted where is kept with the part
(`provider_details["inserted"]`), for a verbatim replay.
"""

from __future__ import annotations

from typing import Any

from ...emit import Key
from ...errors import ErrorInfo
from ...parts import FinishReason, OpaquePart, Origin, Usage
from ..answer import AnswerDecoder, EventFrames, Reader
from ..faults import fault_of_value
from ..fitting import dict_of, int_of, loose_json
from ..frame_template import SkipRule
from ..profile import Profile
from ..tagged import TEXT, TaggedText
from .chunk import Calls, Choice, Chunk, Delta, read_chunk

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "model_length": "length",
    "tool_calls": "tool_call",
    "content_filter": "content_filter",
    "error": "error",
}

_INSERTED = ("reference", "tool_reference")
"""Chunks that stand inside text."""


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte; the header is sometimes wrong."""
    return AnswerDecoder(_Reader(row, origin), EventFrames())


class _Block:
    """The block under way, as far as telling it from the next one needs."""

    __slots__ = ("at", "inserted", "key", "over", "signature", "thought")

    def __init__(self, key: Key, *, thought: bool) -> None:
        self.key = key
        self.thought = thought
        self.at = 0
        """How much text there is: where something is inserted."""
        self.inserted: list[dict[str, Any]] = []
        self.signature: str | None = None
        self.over = False

    def grow(self, text: str) -> None:
        self.at += len(text)

    def insert(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """The details of the part, with `chunk` among them."""
        self.inserted = [*self.inserted, {"at": self.at, "chunk": chunk}]
        return {"inserted": self.inserted}


class _Reader(Reader):
    wire = "Mistral chat"
    code = "not_mistral"

    def __init__(self, row: Profile, origin: Origin) -> None:
        super().__init__(origin)
        self._text = TaggedText(self.emit, row)
        self._calls = Calls(self.emit)
        self._block: _Block | None = None
        self._said: _Block | None = None
        """The latest block of text."""
        self._blocks = 0

    # --- frames ----------------------------------------------------------------------------------------------

    def frame(self, data: bytes, name: str) -> None:
        chunk = read_chunk(data)
        if chunk is None:
            if name == "error":
                self.fail(fault_of_value(data.decode("utf-8", "replace")))
            elif data.strip():
                self.refuse(data)
            return
        choices, emit = chunk.choices, self.emit
        # The same two strings come with every chunk; only news is passed on.
        if (emit.provider_response_id is None and chunk.id) or (emit.model_name is None and chunk.model):
            emit.start(chunk.id, chunk.model)
        if choices is not None:
            self.heard = True
            for choice in choices:
                # Only one answer was asked for; a second choice would be another answer.
                if choice.index == 0:
                    self._choice(choice)
        if chunk.usage:
            emit.usage = read_usage(chunk.usage)
        if choices is None or chunk.error or name == "error":
            fault = _fault(chunk, data, name)
            if fault is not None:
                self.fail(fault)

    def _more(self, block: _Block, text: str) -> None:
        """More of a thought."""
        block.grow(text)
        self.emit.thinking(block.key, text)
        self.skip_rule = SkipRule(on_skip=block.grow)

    def flush(self) -> None:
        self._text.end()
        self._calls.flush()

    def settle(self) -> None:
        if not self.finished:
            self.emit.finish("tool_call" if self._calls.any else "stop")

    def _choice(self, choice: Choice) -> None:
        logprobs = choice.logprobs.content if choice.logprobs is not None else None
        if choice.delta is not None:
            self._message(choice.delta, logprobs, whole=False)
        else:
            self.finished = True
            for message in choice.messages or ([choice.message] if choice.message is not None else []):
                self._message(message, logprobs, whole=True)
        if choice.finish_reason:
            self.finished = True
            self.emit.finish(FINISH_REASONS.get(choice.finish_reason), choice.finish_reason)

    def _message(self, delta: Delta, logprobs: list[dict[str, Any]] | None, *, whole: bool) -> None:
        content = delta.content
        if delta.role == "tool":
            # What a tool of the provider's own returned is no part of the answer.
            native = {"role": "tool", "tool_call_id": delta.tool_call_id, "content": content}
            self._opaque("tool", {"message": native})
            return
        if content:
            if type(content) is str:
                self._say(content, logprobs)
            elif isinstance(content, list):
                for chunk in content:
                    self._chunk(chunk, logprobs if len(content) == 1 else None, whole)
        if delta.tool_calls:
            self._leave()
            for call in delta.tool_calls:
                self._calls.read(call)

    # --- content ---------------------------------------------------------------------------------------------

    def _chunk(self, chunk: Any, logprobs: list[dict[str, Any]] | None, whole: bool) -> None:
        if isinstance(chunk, str):
            self._say(chunk, logprobs)
        if not isinstance(chunk, dict):
            return
        kind = chunk.get("type")
        if kind == "thinking":
            self._think(chunk, whole)
        elif kind == "text":
            text = chunk.get("text")
            if text and isinstance(text, str):
                self._say(text, logprobs)
        elif kind in _INSERTED:
            self._refer(chunk)
        else:
            self._opaque(kind if isinstance(kind, str) else "chunk", chunk)

    def _say(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        block = self._block
        if block is None or block.thought:
            block = self._begin(thought=False)
        block.grow(text)
        self._text.feed(text, logprobs)
        rule = self._text.skip_rule
        if rule is not None:
            on_skip = rule.on_skip

            def skipped(text: str) -> None:
                block.grow(text)
                if on_skip is not None:
                    on_skip(text)

            self.skip_rule = SkipRule(rule.needs_reading, skipped)

    def _think(self, chunk: dict[str, Any], whole: bool) -> None:
        inner, signature, closed = chunk.get("thinking"), chunk.get("signature"), chunk.get("closed") is True
        pieces = inner if isinstance(inner, list) else [inner] if inner else []
        signature = signature if signature and isinstance(signature, str) else None
        block = self._block
        begins = block is None or not block.thought or block.over or _signed(block, pieces, signature)
        # In a whole answer every chunk is a block; in a stream most are pieces of one.
        if block is None or begins or whole:
            if not (pieces or signature):
                return
            block = self._begin(thought=True)
        for piece in pieces:
            text = _text_of(piece)
            if text:
                self._more(block, text)
            elif text is None:
                self.emit.thinking(block.key, details=block.insert(piece))
        if signature is not None and signature != block.signature:
            block.signature = signature
            self.emit.thinking(block.key, signature=signature)
        if closed:
            block.over = True
            if block.at or block.inserted or block.signature:
                self.emit.thinking(block.key, details={"closed": True})

    def _refer(self, chunk: dict[str, Any]) -> None:
        block = self._block
        if block is None or block.thought:
            block = self._begin(thought=False)
        self._text.pause()
        url, title = chunk.get("url"), chunk.get("title")
        citation = {"type": "url_citation", "url": url, "title": title, "start_index": block.at, "end_index": block.at}
        cited = [citation] if isinstance(url, str) else None
        self.emit.text(TEXT, details=block.insert(chunk), annotations=cited)

    def _opaque(self, kind: str, native: Any) -> None:
        self._leave()
        self.emit.whole(OpaquePart(kind, native, provider_name=self.emit.origin.provider))

    def _begin(self, *, thought: bool) -> _Block:
        self._leave()
        if thought:
            self._blocks += 1
            self._block = _Block(("thinking", self._blocks), thought=True)
        else:
            # What seemed to come between may have said nothing: then this is more of the same text.
            same = self._said if self.emit.is_open(TEXT) else None
            self._block = self._said = same or _Block(TEXT, thought=False)
        return self._block

    def _leave(self) -> None:
        """Something else follows the block under way."""
        self.skip_rule = None
        if self._block is not None and not self._block.thought:
            self._text.pause()
        self._block = None


def _text_of(piece: Any) -> str | None:
    """The text of a piece of thought; None for what is no text, but a chunk of another type."""
    if isinstance(piece, dict):
        text = piece.get("text")
        return text if piece.get("type", "text") == "text" and isinstance(text, str) else None
    return piece if isinstance(piece, str) else ""


def _signed(block: _Block, pieces: list[Any], signature: str | None) -> bool:
    """Whether `block` has had its signature, and what comes now is not of the same."""
    return block.signature is not None and block.at > 0 and bool(pieces) and signature != block.signature


def _fault(chunk: Chunk, data: bytes, name: str) -> ErrorInfo | None:
    if chunk.error:
        return fault_of_value({"error": chunk.error})
    if name == "error" or chunk.message or chunk.detail:
        return fault_of_value(loose_json(data))
    return None


# --- usage -----------------------------------------------------------------------------------------------------


def read_usage(raw: dict[str, Any]) -> Usage:
    """Token counts. Mistral mostly does not count reasoning apart; then it is not known here."""
    of_prompt, of_completion = dict_of(raw, "prompt_tokens_details"), dict_of(raw, "completion_tokens_details")
    cached = int_of(of_prompt, "cached_tokens")
    return Usage(
        input_tokens=int_of(raw, "prompt_tokens"),
        output_tokens=int_of(raw, "completion_tokens"),
        output_reasoning_tokens=int_of(of_completion, "reasoning_tokens"),
        cache_read_tokens=cached if cached is not None else int_of(raw, "num_cached_tokens"),
        input_audio_tokens=int_of(of_prompt, "audio_tokens"),
        details={name: raw[name] for name in raw if name not in _STANDARD and int_of(raw, name) is not None},
    )


# Counts that have a field of their own; the others keep their own names in `details`.
_STANDARD = frozenset({"prompt_tokens", "completion_tokens", "total_tokens", "num_cached_tokens"})
