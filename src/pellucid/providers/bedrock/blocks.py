"""The blocks of one answer by index, from start to end.

Text and reasoning have no start event: their first delta starts the block. A delta of another kind under an index that
is in use ends the block that used it. Content that cannot be emitted in pieces (bytes, results of the provider's own
tools, blocks of unknown types) is buffered until the block ends, and is then emitted whole.

Kimi sometimes writes its answer after an opening tag that it never closes, and ends its turn: `<think> It is 30 °C.`
If the turn has no other answer, this text is the answer. Of a stream it was emitted as reasoning already, so it is
repeated as text, and the reasoning counts as cut off: it does not go back to the model.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from ... import tags
from ...emit import Emitter, Key
from ...parts import BuiltinToolReturnPart, FilePart, OpaquePart, json_text
from ..lenient_json import dict_of, objects_in, text_of
from ..profile import Profile
from ..tagged_text import make_splitter
from .chunk import Delta, ReasoningContent
from .media import join_base64, redacted_signature

THINKING, REDACTED, TEXT, CALL, BUILTIN, UNNAMED, BUFFERED = (
    "thinking", "redacted", "text", "call", "builtin", "unnamed", "buffered",
)  # fmt: skip
"""The kinds of blocks. BUILTIN is a call of a provider's own tool, UNNAMED a call without a name so far, BUFFERED a
block that is emitted at its end."""


class _Block:
    __slots__ = ("citations", "key", "kind", "length", "marker", "pieces", "splitter", "start", "values")

    def __init__(self, kind: str, index: int, splitter: tags.Splitter | None = None) -> None:
        self.kind = kind
        self.key = (kind, index)
        self.length = 0
        """Number of characters of the text or of the arguments."""
        self.citations: list[dict[str, Any]] = []
        self.splitter = splitter
        self.marker: str | None = None
        """The tag that opened the reasoning in this text; None outside reasoning."""
        self.pieces: list[str] = []
        """Base64 pieces of redacted reasoning, or arguments of an unnamed call."""
        self.start: dict[str, Any] = {}
        self.values: list[Any] = []
        """Buffered deltas."""


class Blocks:
    """Emits the contents of the blocks."""

    def __init__(self, emit: Emitter, profile: Profile) -> None:
        self._emit = emit
        self._form = profile.form
        self._profile = profile
        self._blocks: dict[int, _Block] = {}
        self._pending_redacted: _Block | None = None
        """A redacted block that has not been emitted yet."""
        self._unclosed: Key | None = None
        """The reasoning whose closing tag was missing at the end of its block."""
        self._has_answer = False
        """Whether there is any text that is not reasoning."""
        self._builtin_tool_names: dict[str, str] = {}
        """Names of the provider's own tools that were called, by call id."""

    # --- a stream ------------------------------------------------------------------------------------------------

    def start(self, index: int, start: dict[str, Any]) -> None:
        """Start a block of the kind that its start event has."""
        call = dict_of(start, "toolUse")
        if call.get("type") == "server_tool_use":
            block = self._begin_block(index, BUILTIN)
            block.start = call
            self._emit_builtin_call(block.key, call, "", ends=True)
        elif call:
            block = self._begin_block(index, CALL)
            self._emit.tool_call(
                block.key, name=text_of(call, "name") or "", call_id=text_of(call, "toolUseId"), explicit_end=True
            )
        elif "text" in start or "reasoningContent" in start:
            self.add_piece(index, start)
        elif start:
            self._begin_block(index, BUFFERED).start = start

    def add_delta(self, index: int, delta: Delta) -> None:
        """Add a delta of text, reasoning or arguments: nearly all deltas."""
        block = self._blocks.get(index)
        reasoning = delta.reasoning_content
        if reasoning is not None:
            if reasoning.redacted_content:
                block = self._add_redacted(index, reasoning.redacted_content)
            if reasoning.text or reasoning.signature:
                if block is None or block.kind is not THINKING:
                    block = self._begin_block(index, THINKING)
                self._emit.thinking(
                    block.key,
                    reasoning.text or "",
                    form=self._form,
                    signature=reasoning.signature or None,
                    explicit_end=True,
                )
        if delta.text:
            if block is None or block.kind is not TEXT:
                block = self._begin_block(index, TEXT)
            if block.splitter is None:
                block.length += len(delta.text)
                self._emit.text(block.key, delta.text, explicit_end=True)
            else:
                self._emit_spans(block, block.splitter.feed(delta.text))
        if delta.tool_use is not None and delta.tool_use.input:
            self._add_arguments(index, delta.tool_use.input)

    def add_piece(self, index: int, value: dict[str, Any]) -> None:
        """Add a delta of any kind, as plain JSON."""
        for kind, inner in value.items():
            if kind == "text" and isinstance(inner, str):
                self._add_text(index, inner)
            elif kind == "reasoningContent" and isinstance(inner, dict):
                self._add_reasoning(index, inner)
            elif kind == "toolUse" and isinstance(inner, dict):
                arguments = inner.get("input")
                self._add_arguments(index, "" if arguments is None else json_text(arguments or ""))
            elif kind == "citation" and isinstance(inner, dict):
                self._add_citations(index, [inner])
            elif inner is not None:
                self._block_of(index, BUFFERED).values.append({kind: inner})

    def stop(self, index: int) -> None:
        """End the block."""
        block = self._blocks.pop(index, None)
        if block is not None:
            self._close_block(block)

    def end_turn(self) -> None:
        """End a turn that the model ended by itself: text after a tag that was not closed is the answer."""
        for index in list(self._blocks):
            self.stop(index)
        text = None if self._unclosed is None or self._has_answer else self._emit.open_text(self._unclosed)
        if text is not None:
            self._emit.close(self._unclosed, at_once=True, complete=False)
            self._emit.text("answer", text.value())

    def end(self) -> None:
        """Emit what is left at the end of the stream. Blocks without an end event stay open, and so are truncated."""
        for block in self._blocks.values():
            self._emit_pending(block)
        self._blocks = {}

    # --- a body --------------------------------------------------------------------------------------------------

    def add_whole_block(self, index: int, block: dict[str, Any], *, ends_turn: bool = False) -> None:
        """Emit a block of an answer that was not streamed.

        Args:
            index: The block's index.
            block: The block.
            ends_turn: Whether the block is the last one of a turn that the model ended by itself.
        """
        call, tool_result = dict_of(block, "toolUse"), dict_of(block, "toolResult")
        citations_content = dict_of(block, "citationsContent")
        if call:
            name, id = text_of(call, "name") or "", text_of(call, "toolUseId")
            args = call.get("input")
            args = args if isinstance(args, dict | str) else json_text(args)
            if call.get("type") == "server_tool_use":
                self._emit_builtin_call(("builtin", index), call, args)
            else:
                self._emit.tool_call(("call", index), args, name=name, call_id=id)
        elif tool_result:
            self._emit_builtin_return(tool_result, tool_result.get("content"))
        elif citations_content:
            for entry in objects_in(citations_content.get("content")):
                self._add_text(index, text_of(entry, "text") or "")
            self._add_citations(index, objects_in(citations_content.get("citations")))
        elif isinstance(block.get("text"), str) and ends_turn and not self._has_answer:
            text = _without_unclosed_tag(block["text"], self._profile)
            if text is None:
                self._add_text(index, block["text"])
            else:
                self._emit.text("answer", text)
        elif isinstance(block.get("text"), str) or dict_of(block, "reasoningContent"):
            self.add_piece(index, block)
        elif dict_of(block, "image"):
            image = dict_of(block, "image")
            self._emit_image(image, [dict_of(image, "source")], {"image": image})
        elif block:
            self._emit_opaque(next(iter(block)), block)
        self.stop(index)

    # --- text and reasoning --------------------------------------------------------------------------------------

    def _add_text(self, index: int, text: str) -> None:
        self.add_delta(index, Delta(text=text))

    def _add_reasoning(self, index: int, value: dict[str, Any]) -> None:
        """Add reasoning of a block or of a delta. A block has one level more."""
        for source in (value, dict_of(value, "reasoningText")):
            text, signature = text_of(source, "text"), text_of(source, "signature")
            self.add_delta(index, Delta(reasoning_content=ReasoningContent(text, signature)))
        blob = text_of(value, "redactedContent")
        if blob:
            self._add_redacted(index, blob)

    def _add_redacted(self, index: int, piece: str) -> _Block:
        """Add base64 of redacted reasoning. It is emitted at its end, or before another block starts."""
        block = self._block_of(index, REDACTED)
        if not block.pieces:
            self._pending_redacted = block
        block.pieces.append(piece)
        return block

    def _add_citations(self, index: int, citations: list[dict[str, Any]]) -> None:
        self._block_of(index, TEXT).citations += citations

    def _emit_spans(self, block: _Block, spans: list[tags.Span]) -> None:
        """Emit the spans of a text with tags. The part stores the tags, so that it can be returned verbatim."""
        key = ("tagged", block.key)
        for kind, text in spans:
            if kind == tags.TEXT:
                block.length += len(text)
                self._has_answer = self._has_answer or not text.isspace()
                self._emit.text(block.key, text, explicit_end=True)
            elif kind == tags.THINKING:
                self._emit.thinking(key, text, explicit_end=True)
            elif kind == tags.OPEN:
                block.marker = text
            elif kind == tags.CLOSE and block.marker is not None:
                self._emit.thinking(key, details={"open": block.marker, "close": text}, explicit_end=True)
                self._emit.close(key)
                block.marker = None

    # --- calls ---------------------------------------------------------------------------------------------------

    def _add_arguments(self, index: int, text: str) -> None:
        block = self._blocks.get(index)
        if block is not None and block.kind is CALL:
            block.length += len(text)
            self._emit.tool_call(block.key, text)
        elif block is not None and block.kind is BUILTIN:
            self._emit_builtin_call(block.key, block.start, text, ends=True)
        elif text:
            self._block_of(index, UNNAMED).pieces.append(text)

    def _emit_builtin_call(
        self, key: Key, call: dict[str, Any], args: str | dict[str, Any], *, ends: bool = False
    ) -> None:
        """Emit a call of a provider's own tool."""
        name, id = text_of(call, "name") or "", text_of(call, "toolUseId") or ""
        self._builtin_tool_names[id] = name
        self._emit.builtin_call(key, args, name=name, call_id=id, item=("tool", id), explicit_end=ends)

    def _emit_builtin_return(self, start: dict[str, Any], content: Any) -> None:
        """Emit the result of a provider's own tool."""
        id = text_of(start, "toolUseId") or ""
        entries = objects_in(content)
        texts = [entry["text"] for entry in entries if isinstance(entry.get("text"), str)]
        details = {name: value for name in ("status", "type") if isinstance(value := start.get(name), str)}
        self._emit.whole_part(
            BuiltinToolReturnPart(
                self._builtin_tool_names.get(id, ""),
                "".join(texts) if entries and len(texts) == len(entries) else content,
                id,
                provider_name=self._emit.origin.provider,
                provider_details=details or None,
            ),
            item=("tool", id),
        )

    # --- buffered blocks -----------------------------------------------------------------------------------------

    def _emit_buffered(self, block: _Block) -> None:
        start, values = block.start, [entry for entry in block.values if isinstance(entry, dict)]
        if "toolResult" in start:
            content = [entry for value in values for entry in objects_in(value.get("toolResult"))]
            self._emit_builtin_return(dict_of(start, "toolResult"), content)
        elif "image" in start:
            head, pieces = dict_of(start, "image"), [dict_of(dict_of(value, "image"), "source") for value in values]
            self._emit_image(head, pieces, {"contentBlockStart": {"image": head}, "contentBlockDelta": values})
        else:
            names = [*start, *(name for value in values for name in value)]
            self._emit_opaque(names[0], {"contentBlockStart": start, "contentBlockDelta": values})

    def _emit_image(self, head: dict[str, Any], sources: list[dict[str, Any]], native: dict[str, Any]) -> None:
        """Emit an image; if it has no bytes, emit its JSON (`native`) as an opaque part."""
        data = join_base64([piece for source in sources if (piece := text_of(source, "bytes"))])
        if data:
            media_type = f"image/{text_of(head, 'format') or 'png'}"
            provider = self._emit.origin.provider
            self._emit.whole_part(FilePart(b64encode(data).decode(), media_type, provider_name=provider))
        else:
            self._emit_opaque("image", native)

    def _emit_opaque(self, kind: str, native: dict[str, Any]) -> None:
        self._emit.whole_part(OpaquePart(kind, native, provider_name=self._emit.origin.provider))

    # --- start and end of a block --------------------------------------------------------------------------------

    def _block_of(self, index: int, kind: str) -> _Block:
        """Return the open block of this kind, or begin it."""
        block = self._blocks.get(index)
        return self._begin_block(index, kind) if block is None or block.kind is not kind else block

    def _begin_block(self, index: int, kind: str) -> _Block:
        """Start a block. First end the block that used the index, and emit pending redacted reasoning."""
        self.stop(index)
        if self._pending_redacted is not None:
            self._emit_pending(self._pending_redacted)
        block = self._blocks[index] = _Block(kind, index, make_splitter(self._profile) if kind is TEXT else None)
        return block

    def _close_block(self, block: _Block) -> None:
        self._emit_pending(block)
        if block.kind is CALL and not block.length:
            # A call without arguments has no delta.
            self._emit.tool_call(block.key, "{}")
        self._emit.close(block.key)
        self._emit.close(("tagged", block.key))

    def _emit_pending(self, block: _Block) -> None:
        """Emit what has not been emitted of a block."""
        if block.kind is REDACTED:
            self._pending_redacted = None
            signature, details = redacted_signature(block.pieces)
            self._emit.thinking(
                block.key,
                id="redacted_content",
                form="redacted",
                signature=signature,
                details=details,
                explicit_end=True,
            )
        elif block.kind is UNNAMED:
            self._emit.tool_call(block.key, "".join(block.pieces), name="", explicit_end=True)
        elif block.kind is BUFFERED:
            self._emit_buffered(block)
        elif block.kind is TEXT:
            if block.splitter is not None:
                self._emit_spans(block, block.splitter.end())
                if block.marker is not None and block.splitter.truncated:
                    self._unclosed = ("tagged", block.key)
                    self._emit.thinking(self._unclosed, details={"open": block.marker}, explicit_end=True)
            if block.citations:
                annotations = [
                    annotation for entry in block.citations for annotation in _annotations_of(entry, block.length)
                ]
                details = {"citations": block.citations}
                self._emit.text(block.key, annotations=annotations or None, details=details, explicit_end=True)


def _without_unclosed_tag(text: str, profile: Profile) -> str | None:
    """Return the text after an opening tag that is not closed; None if there is text before it, or no such tag."""
    splitter = make_splitter(profile)
    if splitter is None:
        return None
    spans = [*splitter.feed(text), *splitter.end()]
    if not splitter.truncated or any(kind == tags.TEXT and not span.isspace() for kind, span in spans):
        return None
    return "".join(span for kind, span in spans if kind == tags.THINKING) or None


def _annotations_of(citation: dict[str, Any], length: int) -> list[dict[str, Any]]:
    """Convert a web citation to OpenAI's form. It refers to the whole block. Document citations have no such form."""
    web = dict_of(dict_of(citation, "location"), "web")
    url = text_of(web, "url")
    if url is None:
        return []
    title = text_of(citation, "title") or text_of(web, "domain") or url
    return [{"type": "url_citation", "start_index": 0, "end_index": length, "title": title, "url": url}]
