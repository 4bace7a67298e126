"""The content blocks, one class a kind: what opens, what comes, what stops.

A block is told to the emitter under a key of its own, so that blocks which a server interleaves come out whole and in
order. `stop` is the wire's word that the block is whole; `cut` is called in its place when the answer breaks off.
What this version does not know is kept whole, and goes back as it came.

What is read of one event of the stream.

Only the fields that mean something here are decoded; msgspec skips the rest without building it. Blocks and messages
stay plain dictionaries: there are few of them, and what this version does not know of them must go back verbatim.
An event that does not fit is read once more, without what does not fit (`fitting`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...emit import Emitter, Key
from ...parts import CompactionPart, Form, OpaquePart
from ..fitting import loose_json, struct_reader
from ..frame_template import SkipRule
from .server_tools import around_input, call_part, extras, is_call, is_result, return_part


class Delta(msgspec.Struct, gc=False):
    """`delta` of `content_block_delta` and of `message_delta`; which fields are there depends on its type."""

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


read_frame = struct_reader(Frame, listed=False)
"""The event, or None for what is not a JSON object at all."""


REDACTED = "redacted_thinking"


class Context:
    """What the blocks of one answer share."""

    def __init__(self, emit: Emitter, form: Form) -> None:
        self.emit = emit
        self.form: Form = form
        """How this model's readable thought relates to its real one."""
        self.called: dict[str, str] = {}
        """The provider's own tools that were called, by the call's id."""
        self.calls = False
        """Whether a function was called."""


class Block:
    """A block under way. `native` is its first event's JSON."""

    def __init__(self, context: Context, key: Key, native: dict[str, Any]) -> None:
        self.context = context
        self.emit = context.emit
        self.key = key
        self.native = native

    def start(self) -> None:
        """It opened; it may hold something already."""

    def delta(self, delta: Delta, data: bytes) -> None:
        """More of it; `data` is the whole event, for fields that `delta` does not know."""

    def skip_rule(self, delta: Delta) -> SkipRule | None:
        """See `Reader`: of an event that brought `delta`."""
        return None

    def stop(self) -> None:
        self.emit.close(self.key)

    def cut(self) -> None:
        """The answer broke off in it: the emitter knows what to do with open text."""


class Thinking(Block):
    """Readable or not: a signature without a word of text is a thought that may not be seen (`display: omitted`)."""

    def start(self) -> None:
        self._say(_text(self.native, "thinking"), _text(self.native, "signature"))
        details = extras(self.native, frozenset({"type", "thinking", "signature"}))
        if details:
            self.emit.thinking(self.key, form=self.context.form, details=details, ends=True)

    def delta(self, delta: Delta, data: bytes) -> None:
        if delta.thinking:
            self._say(delta.thinking, "")
        elif delta.signature or delta.text:
            self._say(delta.text or "", delta.signature or "")

    def skip_rule(self, delta: Delta) -> SkipRule | None:
        return SkipRule() if delta.thinking else None

    def _say(self, text: str, signature: str) -> None:
        # Servers that do not sign send an empty signature: that is none.
        self.emit.thinking(self.key, text, form=self.context.form, signature=signature or None, ends=True)


class Redacted(Block):
    """A thought that went through a safety filter: a blob in place of the text."""

    def start(self) -> None:
        data = _text(self.native, "data")
        self.emit.thinking(self.key, id=REDACTED, form="redacted", signature=data or None, ends=True)


class Text(Block):
    """A piece of the answer. Citations are about all of it, whenever they come."""

    def __init__(self, context: Context, key: Key, native: dict[str, Any]) -> None:
        super().__init__(context, key, native)
        self._length = 0
        cited = native.get("citations")
        self._citations = [entry for entry in cited if isinstance(entry, dict)] if isinstance(cited, list) else []

    def start(self) -> None:
        text = _text(self.native, "text")
        self._length += len(text)
        self.emit.text(self.key, text, ends=True)

    def delta(self, delta: Delta, data: bytes) -> None:
        if delta.text:
            self._length += len(delta.text)
            self.emit.text(self.key, delta.text, ends=True)
        elif delta.citation is not None:
            self._citations.append(delta.citation)

    def skip_rule(self, delta: Delta) -> SkipRule | None:
        return SkipRule(on_skip=self._skipped) if delta.text else None

    def _skipped(self, text: str) -> None:
        self._length += len(text)

    def stop(self) -> None:
        self._cite()
        super().stop()

    def cut(self) -> None:
        self._cite()

    def _cite(self) -> None:
        cited, self._citations = self._citations, []
        if cited:
            self.emit.text(
                self.key,
                annotations=[_annotation(citation, self._length) for citation in cited],
                # As they came: some hold an index that only the provider can read.
                details={"citations": cited},
                ends=True,
            )


class ToolUse(Block):
    """A function call. The input comes as JSON text after an empty object, or whole in the first event."""

    def __init__(self, context: Context, key: Key, native: dict[str, Any]) -> None:
        super().__init__(context, key, native)
        self._opened = False

    def start(self) -> None:
        self.context.calls = True
        if not self.native.get("input"):
            self._open("")

    def delta(self, delta: Delta, data: bytes) -> None:
        text = delta.partial_json
        if text:
            if self._opened:
                self.emit.tool_call(self.key, text, ends=True)
            else:
                self._open(text)
            self.native["input"] = None

    def stop(self) -> None:
        self._whole()
        super().stop()

    def cut(self) -> None:
        if not self._opened:
            self._whole()

    def _whole(self) -> None:
        """Without a word of input, the first event's input is all of it."""
        given = self.native.get("input", {})
        if given is not None:
            given = given if isinstance(given, str | dict) else {}
            if self._opened:
                self.emit.tool_call(self.key, given or "{}", ends=True)
            else:
                self._open(given)

    def _open(self, args: str | dict[str, Any]) -> None:
        self._opened = True
        self.emit.tool_call(
            self.key,
            args,
            name=_text(self.native, "name"),
            call_id=_text(self.native, "id"),
            details=extras(self.native, frozenset({"type", "id", "name", "input"})) or None,
            ends=True,
        )


class ServerToolUse(Block):
    """The provider calls a tool of its own. Its item is open from the start, so that nothing overtakes it."""

    def __init__(self, context: Context, key: Key, native: dict[str, Any]) -> None:
        super().__init__(context, key, native)
        self._item = ("server tool", str(native.get("id") or ""))
        self._ending: str | None = None
        """What follows the streamed input; None if none was streamed."""

    def start(self) -> None:
        self.emit.item(self._item, "builtin_tool", ends=True)

    def delta(self, delta: Delta, data: bytes) -> None:
        text = delta.partial_json
        if not text:
            return
        if self._ending is None:
            head, self._ending = around_input(self.native)
            part = call_part(self.native, self.emit.origin.provider)
            self.context.called[part.tool_call_id] = part.tool_name
            self.emit.builtin_call(
                self.key,
                head + text,
                name=part.tool_name,
                call_id=part.tool_call_id,
                item=self._item,
                details=part.provider_details,
                ends=True,
            )
        else:
            self.emit.builtin_call(self.key, text, ends=True)

    def stop(self) -> None:
        if self._ending is None:
            self.cut()
            return
        self.emit.builtin_call(self.key, self._ending, ends=True)
        self.emit.close(self.key)
        self.emit.close(self._item)

    def cut(self) -> None:
        if self._ending is None:
            part = call_part(self.native, self.emit.origin.provider)
            self.context.called[part.tool_call_id] = part.tool_name
            self.emit.whole(part, item=self._item)
            self.emit.close(self._item)


class Whole(Block):
    """A block that means something only when all of it is there."""

    def delta(self, delta: Delta, data: bytes) -> None:
        """By the rule that holds for all known kinds: text adds up, anything else is the last that was said."""
        for name, value in _fields(data).items():
            had = self.native.get(name)
            if name == "type":
                continue
            grows = isinstance(had, str) and isinstance(value, str) and name not in _OPAQUE
            self.native[name] = had + value if grows else value

    def cut(self) -> None:
        self.stop()


_OPAQUE = ("signature", "encrypted_content", "data")


class ServerToolResult(Whole):
    """What the provider's own tool returned: in the item of its call, if nothing came between."""

    def stop(self) -> None:
        part = return_part(
            self.native, self.context.called.get(_text(self.native, "tool_use_id")), self.emit.origin.provider
        )
        self.emit.whole(part, item=("server tool", part.tool_call_id))


class Compaction(Whole):
    """A stand-in for earlier turns: a summary to read, and something that only the provider reads."""

    def stop(self) -> None:
        native = self.native
        content = native.get("content")
        signature = _text(native, "signature") or _text(native, "encrypted_content")
        self.emit.whole(
            CompactionPart(
                content if isinstance(content, str) else None,
                signature=signature or None,
                provider_name=self.emit.origin.provider,
                provider_details=extras(native, frozenset({"type", "content"})) or None,
            )
        )


class Opaque(Whole):
    """A block this version does not know: a change of the model in mid-answer (`fallback`), a listing of tools, …"""

    def stop(self) -> None:
        kind = _text(self.native, "type") or "unknown"
        self.emit.whole(OpaquePart(kind, self.native, provider_name=self.emit.origin.provider))


_KINDS: dict[str, type[Block]] = {
    "thinking": Thinking,
    REDACTED: Redacted,
    "text": Text,
    "tool_use": ToolUse,
    "compaction": Compaction,
}


def block(context: Context, key: Key, native: dict[str, Any]) -> Block:
    """The block that `native` opens."""
    kind = _text(native, "type")
    known = _KINDS.get(kind)
    if known is None:
        known = ServerToolUse if is_call(kind) else ServerToolResult if is_result(kind) else Opaque
    return known(context, key, native)


def _annotation(citation: dict[str, Any], length: int) -> dict[str, Any]:
    """A citation in OpenAI's shape. It is about the whole block, which is a text part of its own."""
    url = citation.get("url")
    if not isinstance(url, str):
        source = citation.get("source")
        url = source if isinstance(source, str) and source.startswith(("https://", "http://")) else None
    title = citation.get("title") or citation.get("document_title")
    cited = citation.get("cited_text")
    shown = {"title": title, "cited_text": cited, "start_index": 0, "end_index": length}
    if url is not None:
        return {"type": "url_citation", "url": url, **shown, "title": title or ""}
    about = {"file_id": citation.get("file_id"), "filename": title, "index": citation.get("document_index")}
    return {"type": "file_citation"} | {
        name: value for name, value in (about | shown).items() if value is not None and name != "title"
    }


def _text(native: dict[str, Any], name: str) -> str:
    value = native.get(name)
    return value if isinstance(value, str) else ""


def _fields(data: bytes) -> dict[str, Any]:
    value = loose_json(data)
    delta = value.get("delta") if isinstance(value, dict) else None
    return delta if isinstance(delta, dict) else {}
