"""Events of the stream, and the content blocks that they start, extend and stop: one class for each kind of block.

Blocks: each block has its own key in the emitter, so that blocks which a server interleaves are emitted whole and in
order. `stop` is called when the wire ends the block; `end_truncated` is called instead when the answer breaks off.
A block of an unknown type is stored whole, and is returned as it came.

Events: only the fields that are used are decoded; msgspec skips the others without building objects. Blocks and
messages stay plain dictionaries: there are few of them, and their unknown fields must be returned verbatim. An event
that does not match the types is read once more, without the values that do not match (`lenient_json`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...emit import Emitter, Key
from ...parts import CompactionPart, OpaquePart
from ...server_tool_blocks import (
    call_part,
    extra_fields,
    input_affixes,
    is_server_tool_call,
    is_server_tool_result,
    return_part,
)
from ..frame_template import SkipRule
from ..lenient_json import decode_lenient_json, dict_of, lenient_struct_decoder, objects_in, text_of


class Delta(msgspec.Struct, gc=False):
    """`delta` of `content_block_delta` and of `message_delta`. Its type decides which fields are set."""

    type: str | None = None
    thinking: str | None = None
    text: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    container: dict[str, Any] | None = None


class Frame(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    context_management: dict[str, Any] | None = None
    input_transformations: Any = None
    error: Any = None


read_frame = lenient_struct_decoder(Frame, allow_list=False)
"""Decode one event; None if the bytes are not a JSON object."""


REDACTED = "redacted_thinking"


class AnswerContext:
    """State that the blocks of one answer share."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit
        self.builtin_tool_names: dict[str, str] = {}
        """Names of the provider's own tools that were called, by call id."""
        self.has_tool_calls = False
        """Whether the model called a function."""


class Block:
    """A content block that is being streamed. `native` is the JSON of its first event."""

    def __init__(self, context: AnswerContext, key: Key, native: dict[str, Any]) -> None:
        self.context = context
        self.emit = context.emit
        self.key = key
        self.native = native

    def start(self) -> None:
        """Open the block, with the content that its first event holds."""

    def add_delta(self, delta: Delta, data: bytes) -> None:
        """Add a delta. `data` is the whole event, for fields that `Delta` does not have."""

    def skip_rule(self, delta: Delta) -> SkipRule | None:
        """Return the skip rule of an event that holds `delta` (see `WireReader.skip_rule`)."""
        return None

    def stop(self) -> None:
        self.emit.close(self.key)

    def end_truncated(self) -> None:
        """End the block because the answer broke off. The emitter closes open text."""


class ThinkingBlock(Block):
    """A thinking block. A signature without any text is reasoning that is not shown (`display: omitted`)."""

    def start(self) -> None:
        self._emit_thinking(text_of(self.native, "thinking") or "", text_of(self.native, "signature"))
        details = extra_fields(self.native, frozenset({"type", "thinking", "signature"}))
        if details:
            self.emit.thinking(self.key, details=details, explicit_end=True)

    def add_delta(self, delta: Delta, data: bytes) -> None:
        if delta.thinking:
            self._emit_thinking(delta.thinking, None)
        elif delta.signature or delta.text:
            self._emit_thinking(delta.text or "", delta.signature or None)

    def skip_rule(self, delta: Delta) -> SkipRule | None:
        return SkipRule() if delta.thinking else None

    def _emit_thinking(self, text: str, signature: str | None) -> None:
        # Servers that do not sign send an empty signature; it counts as no signature.
        self.emit.thinking(self.key, text, signature=signature, explicit_end=True)


class RedactedThinkingBlock(Block):
    """Reasoning that a safety filter encrypted: opaque data in place of the text."""

    def start(self) -> None:
        data = text_of(self.native, "data")
        self.emit.thinking(self.key, id=REDACTED, form="redacted", signature=data, explicit_end=True)


class TextBlock(Block):
    """A text block. Its citations refer to the whole block, at whatever time they arrive."""

    def __init__(self, context: AnswerContext, key: Key, native: dict[str, Any]) -> None:
        super().__init__(context, key, native)
        self._length = 0
        self._citations = objects_in(native.get("citations"))

    def start(self) -> None:
        text = text_of(self.native, "text") or ""
        self._length += len(text)
        self.emit.text(self.key, text, explicit_end=True)

    def add_delta(self, delta: Delta, data: bytes) -> None:
        if delta.text:
            self._length += len(delta.text)
            self.emit.text(self.key, delta.text, explicit_end=True)
        elif delta.citation is not None:
            self._citations.append(delta.citation)

    def skip_rule(self, delta: Delta) -> SkipRule | None:
        return SkipRule(on_skip=self._on_skipped_text) if delta.text else None

    def _on_skipped_text(self, text: str) -> None:
        self._length += len(text)

    def stop(self) -> None:
        self._emit_citations()
        super().stop()

    def end_truncated(self) -> None:
        self._emit_citations()

    def _emit_citations(self) -> None:
        citations, self._citations = self._citations, []
        if citations:
            self.emit.text(
                self.key,
                annotations=[_annotation(citation, self._length) for citation in citations],
                # Unchanged: some citations hold an encrypted index that only the provider can read.
                details={"citations": citations},
                explicit_end=True,
            )


class ToolUseBlock(Block):
    """A function call. The input follows an empty object as JSON text, or is whole in the first event."""

    def __init__(self, context: AnswerContext, key: Key, native: dict[str, Any]) -> None:
        super().__init__(context, key, native)
        self._is_open = False

    def start(self) -> None:
        self.context.has_tool_calls = True
        if not self.native.get("input"):
            self._open_call("")

    def add_delta(self, delta: Delta, data: bytes) -> None:
        text = delta.partial_json
        if text:
            if self._is_open:
                self.emit.tool_call(self.key, text, explicit_end=True)
            else:
                self._open_call(text)
            self.native["input"] = None

    def stop(self) -> None:
        self._emit_whole_input()
        super().stop()

    def end_truncated(self) -> None:
        if not self._is_open:
            self._emit_whole_input()

    def _emit_whole_input(self) -> None:
        """Emit the input of the first event, if no input was streamed."""
        tool_input = self.native.get("input", {})
        if tool_input is not None:
            tool_input = tool_input if isinstance(tool_input, str | dict) else {}
            if self._is_open:
                self.emit.tool_call(self.key, tool_input or "{}", explicit_end=True)
            else:
                self._open_call(tool_input)

    def _open_call(self, args: str | dict[str, Any]) -> None:
        self._is_open = True
        self.emit.tool_call(
            self.key,
            args,
            name=text_of(self.native, "name") or "",
            call_id=text_of(self.native, "id"),
            details=extra_fields(self.native, frozenset({"type", "id", "name", "input"})) or None,
            explicit_end=True,
        )


class ServerToolUseBlock(Block):
    """A call of a provider's own tool. Its item is opened at once, so that no later item is emitted before it."""

    def __init__(self, context: AnswerContext, key: Key, native: dict[str, Any]) -> None:
        super().__init__(context, key, native)
        self._item = ("server tool", str(native.get("id") or ""))
        self._input_suffix: str | None = None
        """JSON text that follows the streamed input; None if no input was streamed."""

    def start(self) -> None:
        self.emit.item(self._item, "builtin_tool", explicit_end=True)

    def add_delta(self, delta: Delta, data: bytes) -> None:
        text = delta.partial_json
        if not text:
            return
        if self._input_suffix is None:
            input_prefix, self._input_suffix = input_affixes(self.native)
            part = call_part(self.native, self.emit.origin.provider)
            self.context.builtin_tool_names[part.tool_call_id] = part.tool_name
            self.emit.builtin_call(
                self.key,
                input_prefix + text,
                name=part.tool_name,
                call_id=part.tool_call_id,
                item=self._item,
                details=part.provider_details,
                explicit_end=True,
            )
        else:
            self.emit.builtin_call(self.key, text, explicit_end=True)

    def stop(self) -> None:
        if self._input_suffix is None:
            self.end_truncated()
            return
        self.emit.builtin_call(self.key, self._input_suffix, explicit_end=True)
        self.emit.close(self.key)
        self.emit.close(self._item)

    def end_truncated(self) -> None:
        if self._input_suffix is None:
            part = call_part(self.native, self.emit.origin.provider)
            self.context.builtin_tool_names[part.tool_call_id] = part.tool_name
            self.emit.whole_part(part, item=self._item)
            self.emit.close(self._item)


class BufferedBlock(Block):
    """A block that is emitted when it is complete."""

    def add_delta(self, delta: Delta, data: bytes) -> None:
        """Merge a delta by the rule of all known kinds: texts are appended, other values replace the earlier value."""
        for name, value in dict_of(decode_lenient_json(data), "delta").items():
            previous = self.native.get(name)
            if name == "type":
                continue
            is_appended = isinstance(previous, str) and isinstance(value, str) and name not in _OPAQUE_FIELDS
            self.native[name] = previous + value if is_appended else value

    def end_truncated(self) -> None:
        self.stop()


_OPAQUE_FIELDS = ("signature", "encrypted_content", "data")


class ServerToolResultBlock(BufferedBlock):
    """The result of a provider's own tool. It joins the item of its call, if no other item came between."""

    def stop(self) -> None:
        part = return_part(
            self.native,
            self.context.builtin_tool_names.get(text_of(self.native, "tool_use_id") or ""),
            self.emit.origin.provider,
        )
        self.emit.whole_part(part, item=("server tool", part.tool_call_id))


class CompactionBlock(BufferedBlock):
    """A replacement for earlier turns: a readable summary, and encrypted data that only the provider reads."""

    def stop(self) -> None:
        native = self.native
        content = native.get("content")
        signature = text_of(native, "signature") or text_of(native, "encrypted_content")
        self.emit.whole_part(
            CompactionPart(
                content if isinstance(content, str) else None,
                signature=signature,
                provider_name=self.emit.origin.provider,
                provider_details=extra_fields(native, frozenset({"type", "content"})) or None,
            )
        )


class OpaqueBlock(BufferedBlock):
    """A block of an unknown type: a change of the model during the answer (`fallback`), a list of tools, …"""

    def stop(self) -> None:
        kind = text_of(self.native, "type") or "unknown"
        self.emit.whole_part(OpaquePart(kind, self.native, provider_name=self.emit.origin.provider))


_BLOCK_CLASSES: dict[str, type[Block]] = {
    "thinking": ThinkingBlock,
    REDACTED: RedactedThinkingBlock,
    "text": TextBlock,
    "tool_use": ToolUseBlock,
    "compaction": CompactionBlock,
}


def open_block(context: AnswerContext, key: Key, native: dict[str, Any]) -> Block:
    """Return the block object for the JSON of a block's first event."""
    kind = text_of(native, "type") or ""
    block_class = _BLOCK_CLASSES.get(kind)
    if block_class is None:
        block_class = (
            ServerToolUseBlock
            if is_server_tool_call(kind)
            else ServerToolResultBlock
            if is_server_tool_result(kind)
            else OpaqueBlock
        )
    return block_class(context, key, native)


def _annotation(citation: dict[str, Any], length: int) -> dict[str, Any]:
    """Convert a citation to OpenAI's form. It refers to the whole block, which is a text part of its own."""
    url = citation.get("url")
    if not isinstance(url, str):
        source = citation.get("source")
        url = source if isinstance(source, str) and source.startswith(("https://", "http://")) else None
    title = citation.get("title") or citation.get("document_title")
    cited_text = citation.get("cited_text")
    common_fields = {"title": title, "cited_text": cited_text, "start_index": 0, "end_index": length}
    if url is not None:
        return {"type": "url_citation", "url": url, **common_fields, "title": title or ""}
    document_fields = {"file_id": citation.get("file_id"), "filename": title, "index": citation.get("document_index")}
    return {"type": "file_citation"} | {
        name: value
        for name, value in (document_fields | common_fields).items()
        if value is not None and name != "title"
    }
