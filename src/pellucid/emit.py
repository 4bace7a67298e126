"""The one writer of legal event sequences.

A decoder says what it saw (`thinking`, `text`, `tool_call`, …) under the key that its wire gives the block, and the
emitter works out which items and parts open and close. So a decoder cannot write an illegal sequence, and no
decoder repeats the bookkeeping. The rules it keeps:

* **Nothing opens before it holds something.** An empty delta for a block that is not open is nothing.
* **One part is open at a time.** A new key closes the open part if that part can be closed: reasoning and text
  on wires without block ends always can; a block that the wire will end itself (`ends=True`) only once `close` was
  called; a tool call only once its arguments are whole JSON. Otherwise the later block is held back, whole and in
  order, until the earlier one has closed.
* **Closing is lazy.** `close` marks a block as over; its end events are written when something follows or the
  turn ends. Only then is it known whether the model was cut off in it (Anthropic closes its block first and says
  `max_tokens` afterwards).
* **A failure is an event.** `fail` closes what is open as incomplete and writes one `ErrorEvent`; a second failure,
  or content after it, is ignored.
* **`end` always leaves a closed turn**, and calling it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from .errors import ErrorInfo
from .events import (
    Cause,
    ErrorEvent,
    ItemEndEvent,
    ItemKind,
    ItemStartEvent,
    ModelEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RefusalPartDelta,
    ResponseEndEvent,
    ResponseStartEvent,
    TextPartDelta,
    ThinkingPartDelta,
    ToolCallPartDelta,
)
from .parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    FinishReason,
    Form,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
    json_text,
)
from .text import GrowingText

Key = Hashable

WholePart = BuiltinToolCallPart | BuiltinToolReturnPart | FilePart | CompactionPart | OpaquePart | SealedPart
"""Parts that arrive in one piece."""

ITEM_OF: dict[type[ModelResponsePart], ItemKind] = {
    ThinkingPart: "reasoning",
    SealedPart: "reasoning",
    TextPart: "message",
    RefusalPart: "message",
    ToolCallPart: "tool_call",
    BuiltinToolCallPart: "builtin_tool",
    BuiltinToolReturnPart: "builtin_tool",
    FilePart: "file",
    CompactionPart: "compaction",
    OpaquePart: "opaque",
}
"""Which kind of item each kind of part lives in."""


class _Item:
    """The open item, and what is to stand on its end."""

    __slots__ = ("ends", "index", "key", "kind", "native", "signature")

    def __init__(self, key: Key, kind: ItemKind, index: int, ends: bool) -> None:
        self.key = key
        self.kind = kind
        self.index = index
        self.ends = ends
        self.signature: str | None = None
        self.native: Any = None


class _Open:
    """The open part: what it was opened as, and what has come since."""

    __slots__ = (
        "annotations", "checked", "details", "ends", "key", "kind", "logprobs", "part", "signature", "text",
    )  # fmt: skip

    def __init__(self, key: Key, part: ModelResponsePart, ends: bool) -> None:
        self.key = key
        self.kind = type(part)
        self.part = part
        self.ends = ends
        self.text = GrowingText()
        self.signature: str | None = None
        self.details: dict[str, Any] | None = None
        self.logprobs: list[dict[str, Any]] | None = None
        self.annotations: list[dict[str, Any]] | None = None
        self.checked = -1

    def may_close(self) -> bool:
        if self.ends:
            return False
        if self.kind is not ToolCallPart:
            return True
        # Unchanged since it was last found incomplete: not parsed again for every delta that has to wait.
        length = self.text.length
        if self.checked == length:
            return False
        self.checked = length
        return _is_json(self.text.value())

    def finished(self, complete: bool) -> ModelResponsePart:
        """The whole part."""
        part, text = self.part, self.text.value()
        if isinstance(part, ThinkingPart):
            return replace(
                part,
                content=text,
                signature=self.signature,
                provider_details=self.details,
                complete=complete,
            )
        if isinstance(part, TextPart):
            return replace(
                part,
                content=text,
                signature=self.signature,
                provider_details=self.details,
                annotations=self.annotations,
                logprobs=self.logprobs,
                complete=complete,
            )
        if isinstance(part, RefusalPart):
            return replace(part, content=text, complete=complete)
        if isinstance(part, ToolCallPart):
            return replace(
                part,
                # An object stays one, if nothing was added to its text.
                args=part.args if isinstance(part.args, dict) and json_text(part.args) == text else text,
                signature=self.signature,
                provider_details=self.details,
                complete=complete or _is_json(text),
            )
        return part


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


class Emitter:
    """Writes the events of one model turn. `take()` hands over what has been written since the last call."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.failed = False
        self.finish_reason: FinishReason | None = None
        self.native_finish_reason: str | None = None
        self.usage = Usage()
        self.provider_response_id: str | None = None
        self.model_name: str | None = None
        self.provider_details: dict[str, Any] = {}
        self._out: list[ModelEvent] = []
        self._item: _Item | None = None
        self._open: _Open | None = None
        self._items = 0
        self._parts = 0
        self._last_kind: str | None = None
        self._started = False
        self._ended = False
        self._held: list[Callable[[], None]] = []
        self._held_keys: set[Key] = set()
        self._calls: dict[Key, str] = {}

    def take(self) -> list[ModelEvent]:
        out = self._out
        self._out = []
        return out

    def is_open(self, key: Key) -> bool:
        """Whether block `key` is the part that is open."""
        return self._open is not None and self._open.key == key

    # --- the turn ------------------------------------------------------------------------------------------

    def start(self, provider_response_id: str | None = None, model_name: str | None = None) -> None:
        """The provider named its response. May be called again: what comes later is told at the end."""
        self.provider_response_id = provider_response_id or self.provider_response_id
        self.model_name = model_name or self.model_name
        if not self._started:
            self._started = True
            self._out.append(
                ResponseStartEvent(self.origin, self.provider_response_id, self.model_name),
            )

    def finish(self, reason: FinishReason | None, native: str | None = None) -> None:
        """The provider said why it stopped. The turn ends only with `end`: usage may still follow."""
        self.finish_reason = reason
        self.native_finish_reason = native

    def fail(self, error: ErrorInfo) -> None:
        if self.failed or self._ended:
            return
        self.start()
        self._close_all(complete=False)
        self.failed = True
        self._out.append(ErrorEvent(error))

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        """Close the turn and take what is left; `error` says what broke. Idempotent."""
        if not self._ended:
            self.start()
            if error is not None:
                self.fail(error)
            cut = cause != "eof" or self.finish_reason in ("length", "content_filter", "error")
            self._close_all(complete=not cut)
            self._ended = True
            self._out.append(
                ResponseEndEvent(
                    finish_reason="error" if self.failed or cause == "error" else self.finish_reason,
                    native_finish_reason=self.native_finish_reason,
                    usage=self.usage,
                    provider_response_id=self.provider_response_id,
                    model_name=self.model_name,
                    provider_details=self.provider_details or None,
                )
            )
        return self.take()

    # --- parts that stream -----------------------------------------------------------------------------------

    def thinking(
        self,
        key: Key,
        text: str = "",
        *,
        item: Key = None,
        form: Form = "raw",
        id: str | None = None,
        signature: str | None = None,
        details: dict[str, Any] | None = None,
        ends: bool = False,
    ) -> None:
        """More reasoning in block `key` of item `item` (by default an item of its own).

        `signature` replaces an earlier one, `details` merge. With `ends`, the wire will `close` the block itself.
        """
        open_ = self._open
        if open_ is None or open_.key != key or open_.kind is not ThinkingPart:
            if not text and signature is None and not details:
                return
            again = partial(
                self.thinking,
                key,
                text,
                item=item,
                form=form,
                id=id,
                signature=signature,
                details=details,
                ends=ends,
            )
            part = ThinkingPart("", id=id, provider_name=self.origin.provider, form=form)
            open_ = self._admit(key, item, part, ends, again)
            if open_ is None:
                return
        if text:
            open_.text.add(text)
            self._out.append(PartDeltaEvent(self._parts, ThinkingPartDelta(text)))
        if signature is not None or details:
            self._seal(open_, signature, details)
            self._out.append(
                PartDeltaEvent(
                    self._parts,
                    ThinkingPartDelta(
                        signature_delta=signature,
                        provider_name=self.origin.provider if signature is not None else None,
                        provider_details=details or None,
                    ),
                )
            )

    def text(
        self,
        key: Key,
        text: str = "",
        *,
        item: Key = "message",
        id: str | None = None,
        signature: str | None = None,
        details: dict[str, Any] | None = None,
        logprobs: list[dict[str, Any]] | None = None,
        annotations: list[dict[str, Any]] | None = None,
        ends: bool = False,
    ) -> None:
        """More answer. Text parts of one `item` make one message; `logprobs` and `annotations` append."""
        open_ = self._open
        if open_ is None or open_.key != key or open_.kind is not TextPart:
            if not (text or signature or details or annotations):
                return
            again = partial(
                self.text,
                key,
                text,
                item=item,
                id=id,
                signature=signature,
                details=details,
                logprobs=logprobs,
                annotations=annotations,
                ends=ends,
            )
            part = TextPart("", id=id, provider_name=self.origin.provider if id or signature else None)
            open_ = self._admit(key, item, part, ends, again)
            if open_ is None:
                return
        if text or annotations:
            if text:
                open_.text.add(text)
            if logprobs:
                open_.logprobs = open_.logprobs or []
                open_.logprobs += logprobs
            if annotations:
                open_.annotations = open_.annotations or []
                open_.annotations += annotations
            self._out.append(PartDeltaEvent(self._parts, TextPartDelta(text, logprobs, annotations)))
        if signature is not None or details:
            self._seal(open_, signature, details)

    def refusal(self, key: Key, text: str, *, item: Key = "message", ends: bool = False) -> None:
        """More of the model's refusal."""
        open_ = self._open
        if open_ is None or open_.key != key or open_.kind is not RefusalPart:
            if not text:
                return
            again = partial(self.refusal, key, text, item=item, ends=ends)
            open_ = self._admit(key, item, RefusalPart(""), ends, again)
            if open_ is None:
                return
        if text:
            open_.text.add(text)
            self._out.append(PartDeltaEvent(self._parts, RefusalPartDelta(text)))

    def tool_call(
        self,
        key: Key,
        args: str | dict[str, Any] = "",
        *,
        name: str | None = None,
        call_id: str | None = None,
        id: str | None = None,
        signature: str | None = None,
        details: dict[str, Any] | None = None,
        ends: bool = False,
    ) -> None:
        """More of a function call. Opens when `name` is given; `args` is JSON text, or the whole object."""
        open_ = self._open
        if open_ is None or open_.key != key or open_.kind is not ToolCallPart:
            again = partial(
                self.tool_call,
                key,
                args,
                name=name,
                call_id=call_id,
                id=id,
                signature=signature,
                details=details,
                ends=ends,
            )
            if name is None and key not in self._held_keys:
                self._late_arguments(key, args)
                return
            part = ToolCallPart(
                name or "",
                args if isinstance(args, dict) else "",
                call_id or "",
                id=id,
                provider_name=self.origin.provider if id or signature else None,
            )
            open_ = self._admit(key, None, part, ends, again)
            if open_ is None:
                return
            self._calls[key] = call_id or ""
        text = args if isinstance(args, str) else json_text(args)
        if text:
            open_.text.add(text)
            self._out.append(PartDeltaEvent(self._parts, ToolCallPartDelta(text)))
        if signature is not None or details:
            self._seal(open_, signature, details)

    def close(self, key: Key) -> None:
        """The wire said that block or item `key` is over (if it was never opened, this is nothing)."""
        if key in self._held_keys:
            self._hold(key, partial(self.close, key))
            return
        if self._open is not None and self._open.key == key:
            self._open.ends = False
        if self._item is not None and self._item.key == key:
            self._item.ends = False
        if self._held and self._all_closable():
            self._close_part(complete=True)
            self._close_item("completed")
            self._release()

    # --- items and whole parts ---------------------------------------------------------------------------------

    def item(
        self,
        key: Key,
        kind: ItemKind,
        *,
        id: str | None = None,
        signature: str | None = None,
        native: Any = None,
        ends: bool = False,
    ) -> None:
        """Make sure item `key` is open, and note what is to stand on its end.

        This is how an item without text exists: an encrypted blob, say, with nothing to show. With `ends`, the
        wire will `close` the item itself, and other items wait for that.
        """
        if self.failed or self._ended:
            return
        item = self._item
        if item is None or item.key != key:
            again = partial(self.item, key, kind, id=id, signature=signature, native=native, ends=ends)
            if not self._make_room(key, key, again):
                return
            item = self._open_item(key, kind, id, ends)
        if signature is not None:
            item.signature = signature
        if native is not None:
            item.native = native

    def whole(self, part: WholePart, *, item: Key = None) -> None:
        """A part that arrives in one piece. Parts with the same `item` key, one after the other, share an item."""
        if self.failed or self._ended:
            return
        key = item if item is not None else ("whole", self._parts, len(self._held))
        if not self._make_room(key, key, partial(self.whole, part, item=key), ITEM_OF[type(part)]):
            return
        if self._item is None:
            self._open_item(key, ITEM_OF[type(part)], None if isinstance(part, SealedPart) else part.id)
        self._out.append(PartStartEvent(self._parts, part, self._last_kind))
        self._out.append(PartEndEvent(self._parts, part))
        self._last_kind = part.part_kind
        self._parts += 1

    # --- the machinery -----------------------------------------------------------------------------------------

    def _admit(
        self,
        key: Key,
        item: Key,
        part: ModelResponsePart,
        ends: bool,
        again: Callable[[], None],
    ) -> _Open | None:
        """Open `part`, closing what can be closed. None when it must wait, or the turn is over."""
        if self.failed or self._ended:
            return None
        item_key = key if item is None else item
        if not self._make_room(key, item_key, again, ITEM_OF[type(part)]):
            return None
        if self._item is None:
            self._open_item(item_key, ITEM_OF[type(part)], getattr(part, "id", None))
        opens = replace(part, args="") if isinstance(part, ToolCallPart) else part
        self._out.append(PartStartEvent(self._parts, opens, self._last_kind))
        self._open = _Open(key, part, ends)
        return self._open

    def _make_room(self, key: Key, item_key: Key, again: Callable[[], None], kind: ItemKind | None = None) -> bool:
        """Close the open part, and the open item if another one is meant; or hold `again` back.

        What is open may have to stay (see the rules above), and nothing overtakes what is already waiting.
        """
        item = self._item
        stays = item is None or (item.key == item_key and kind in (None, item.kind))
        if self._held_keys and not (stays and item is not None and key not in self._held_keys):
            self._hold(key, again)
            return False
        if self._open is not None and not self._open.may_close():
            self._hold(key, again)
            return False
        if not stays and item is not None and item.ends:
            self._hold(key, again)
            return False
        self._close_part(complete=True)
        if not stays:
            self._close_item("completed")
        return True

    def _all_closable(self) -> bool:
        return (self._open is None or self._open.may_close()) and (self._item is None or not self._item.ends)

    def _hold(self, key: Key, call: Callable[[], None]) -> None:
        self._held.append(call)
        self._held_keys.add(key)

    def _release(self) -> None:
        """Replay what was held back. Whatever still has to wait holds itself back again."""
        held, self._held = self._held, []
        self._held_keys = set()
        for call in held:
            call()

    def _open_item(self, key: Key, kind: ItemKind, native_id: str | None, ends: bool = False) -> _Item:
        self.start()
        if self._item is not None:
            self._close_item("completed")
        self._out.append(ItemStartEvent(self._items, kind, native_id=native_id))
        self._item = _Item(key, kind, self._items, ends)
        return self._item

    def _close_part(self, *, complete: bool) -> bool:
        """Write the open part's end. True when the part is whole."""
        open_ = self._open
        if open_ is None:
            return True
        part = open_.finished(complete)
        self._open = None
        self._out.append(PartEndEvent(self._parts, part))
        self._last_kind = part.part_kind
        self._parts += 1
        return getattr(part, "complete", True)

    def _close_item(self, status: str) -> None:
        item = self._item
        if item is None:
            return
        self._item = None
        self._items += 1
        opaque = item.signature is not None or item.native is not None
        self._out.append(
            ItemEndEvent(
                item.index,
                "completed" if status == "completed" else "incomplete",
                signature=item.signature,
                native=item.native,
                origin=self.origin if opaque else None,
            )
        )

    def _close_all(self, *, complete: bool) -> None:
        """Close everything; what was held back is written first, so that only the last item can be incomplete."""
        while self._held:
            self._close_part(complete=True)
            self._close_item("completed")
            self._release()
        whole = self._close_part(complete=complete)
        self._close_item("completed" if whole else "incomplete")

    def _seal(self, open_: _Open, signature: str | None, details: dict[str, Any] | None) -> None:
        if signature is not None:
            open_.signature = signature
            if self._item is not None:
                self._item.signature = signature
        if details:
            open_.details = {**(open_.details or {}), **details}

    def _late_arguments(self, key: Key, args: str | dict[str, Any]) -> None:
        """Arguments for a call that was whole already, or was never named: kept, but not part of any call."""
        if isinstance(args, dict) or args.strip():
            native = {"tool_call_id": self._calls.get(key), "arguments": args}
            self.whole(OpaquePart("late_arguments", native, provider_name=self.origin.provider))


def replay(response: ModelResponse) -> list[ModelEvent]:
    """The events of a response that is already whole. `fold` gives the same response back."""
    origin = response.origin or Origin("unknown", "unknown", response.model_name or "unknown")
    out: list[ModelEvent] = [ResponseStartEvent(origin, response.provider_response_id, response.model_name)]
    index, last_kind = 0, None
    for item_index, parts in enumerate(_items_of(response.parts)):
        first = parts[0]
        signature = getattr(first, "signature", None)
        out.append(ItemStartEvent(item_index, ITEM_OF[type(first)], first.item_id, getattr(first, "id", None)))
        for part in parts:
            # A thought of which only the fact (or its signature on the item) is known has no part events.
            if not isinstance(part, ThinkingPart) or part.content or part.signature or part.provider_details:
                out += _replay_part(index, part, last_kind)
                index, last_kind = index + 1, part.part_kind
        whole = all(getattr(part, "complete", True) for part in parts)
        out.append(
            ItemEndEvent(
                item_index,
                "completed" if whole else "incomplete",
                signature=signature,
                origin=origin if signature is not None else None,
            )
        )
    out.append(
        ResponseEndEvent(
            finish_reason=response.finish_reason,
            native_finish_reason=response.native_finish_reason,
            usage=response.usage,
            provider_response_id=response.provider_response_id,
            model_name=response.model_name,
            provider_details=response.provider_details,
        )
    )
    return out


def _items_of(parts: list[ModelResponsePart]) -> list[list[ModelResponsePart]]:
    """Neighbours with one `item_id` and one kind of item belong together; a part without an id stands alone."""
    items: list[list[ModelResponsePart]] = []
    for part in parts:
        last = items[-1][-1] if items else None
        together = (
            last is not None
            and last.item_id is not None
            and last.item_id == part.item_id
            and ITEM_OF[type(last)] == ITEM_OF[type(part)]
        )
        if together:
            items[-1].append(part)
        else:
            items.append([part])
    return items


def _replay_part(index: int, part: ModelResponsePart, last_kind: str | None) -> list[ModelEvent]:
    bare: ModelResponsePart = part
    delta: ThinkingPartDelta | TextPartDelta | RefusalPartDelta | ToolCallPartDelta | None = None
    if isinstance(part, ThinkingPart):
        bare = replace(part, content="", signature=None, provider_details=None, complete=True)
        if part.content or part.signature is not None or part.provider_details:
            delta = ThinkingPartDelta(part.content or None, part.signature, provider_details=part.provider_details)
    elif isinstance(part, TextPart):
        bare = replace(
            part,
            content="",
            signature=None,
            provider_details=None,
            annotations=None,
            logprobs=None,
            complete=True,
        )
        if part.content or part.annotations:
            delta = TextPartDelta(part.content, part.logprobs, part.annotations)
    elif isinstance(part, RefusalPart):
        bare = replace(part, content="", complete=True)
        delta = RefusalPartDelta(part.content) if part.content else None
    elif isinstance(part, ToolCallPart):
        bare = replace(
            part,
            args="",
            signature=None,
            provider_details=None,
            complete=True,
        )
        delta = ToolCallPartDelta(part.args_as_json()) if part.args not in (None, "") else None
    middle: list[ModelEvent] = [PartDeltaEvent(index, delta)] if delta is not None else []
    return [PartStartEvent(index, bare, last_kind), *middle, PartEndEvent(index, part)]
