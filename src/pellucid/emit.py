"""The one writer of legal event sequences.

A decoder says what it saw (`thinking`, `text`, `tool_call`, …) under the key that its wire gives the block, and the
emitter works out which items and parts open and close. So a decoder cannot write an illegal sequence, and no
decoder repeats the bookkeeping. The rules it keeps:

* **Nothing opens before it holds something.** An empty delta for a block that is not open is nothing.
* **One part is open at a time.** A new key closes the open part if that part can be closed: reasoning and text
  on wires without block ends always can; a block that the wire will end itself (`ends=True`) only once `close`
  was called; a call only once its arguments are whole JSON. Otherwise the later block is held back, whole and in
  order, until the earlier one can be closed.
* **Closing is lazy.** `close` marks a block as over; its end events are written when something follows or the
  turn ends. Only then is it known whether the model was cut off in it (Anthropic closes its block first and says
  `max_tokens` afterwards).
* **A failure is an event.** `fail` closes what is open as incomplete and writes one `ErrorEvent`; a second failure,
  or content after it, is ignored.
* **`end` always leaves a closed turn**, and calling it again changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import msgspec

from .errors import ErrorInfo
from .events import (
    ITEM_OF,
    Cause,
    ErrorEvent,
    ItemEndEvent,
    ItemKind,
    ItemStartEvent,
    ModelEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
)
from .growing import GrowingPart, is_text_alone, split_part
from .parts import (
    DELTA_OF,
    OPAQUE_FIELDS,
    BuiltinToolCallPart,
    BuiltinToolCallPartDelta,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    FinishReason,
    Form,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    PartDelta,
    RefusalPart,
    SealedPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    Usage,
    has_opaque,
    json_text,
)
from .text import GrowingText

Key = Hashable

WholePart = BuiltinToolCallPart | BuiltinToolReturnPart | FilePart | CompactionPart | OpaquePart | SealedPart
"""Parts that arrive in one piece."""


class _Waiting:
    """A block that has to wait: what was said of it."""

    __slots__ = ("calls", "keys")

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.keys: set[Key] = set()


class _Item:
    """The open item, and what is to stand on its end."""

    __slots__ = ("ends", "index", "key", "kind", "native", "opaque", "signature")

    def __init__(self, key: Key, kind: ItemKind, index: int, ends: bool) -> None:
        self.key = key
        self.kind = kind
        self.index = index
        self.ends = ends
        self.opaque = False
        """Whether a part of it carries opaque data."""
        self.signature: str | None = None
        self.native: Any = None


class _Open(GrowingPart):
    """The open part."""

    __slots__ = ("checked", "ends", "key", "kind")

    def __init__(self, key: Key, part: ModelResponsePart, ends: bool) -> None:
        super().__init__(part)
        self.key = key
        self.kind = type(part)
        self.ends = ends
        self.checked = -1

    def may_close(self) -> bool:
        """Whether nothing more of it need come."""
        return not self.ends and (self.kind is not ToolCallPart or self.is_json())

    def is_json(self) -> bool:
        """Whether its text is whole JSON."""
        length = self.text.length
        end = self.text.since(length - _TAIL).rstrip()
        # What ends in the middle of an object need not be parsed to know it.
        if self.checked == length or (end and not end.endswith(_ENDS_OF_JSON)):
            return False
        if is_json(self.text.value()):
            return True
        # Not parsed again for every delta that has to wait.
        self.checked = length
        return False


_TAIL = 32
"""Characters at the end of arguments that are looked at before all of them are parsed."""
_ENDS_OF_JSON = ("}", "]", '"', "e", "l", *"0123456789")


def is_json(text: str) -> bool:
    """Whether arguments are whole already."""
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
        self.events: list[ModelEvent] = []
        """Written since the last `take`."""
        self._item: _Item | None = None
        self._open: _Open | None = None
        self._items = 0
        self._item_parts = 0
        self._cut = False
        """Whether a part of the open item was cut off."""
        self._parts = 0
        self._last_kind: str | None = None
        self._started = False
        self._ended = False
        self._held: deque[_Waiting] | None = None
        """What has to wait, block by block, in the order in which the blocks came; most turns have nothing."""
        self._held_keys: dict[Key, _Waiting] = {}
        self.holds = 0
        """How often something had to wait."""
        self._replaying = False
        self._blocked = False
        self._calls: dict[Key, str] = {}

    def take(self) -> list[ModelEvent]:
        """The events written since the last call. (What is read for every token does this for itself.)"""
        events = self.events
        self.events = []
        return events

    def is_open(self, key: Key) -> bool:
        """Whether block `key` is the part that is open."""
        return self._open is not None and self._open.key == key

    def text_of(self, key: Key) -> GrowingText | None:
        """What block `key` holds so far, while it is the part that is open. To be read, not written."""
        return self._open.text if self._open is not None and self._open.key == key else None

    # --- the turn ------------------------------------------------------------------------------------------

    def start(self, provider_response_id: str | None = None, model_name: str | None = None) -> None:
        """The provider named its response. May be called again: what comes later is told at the end."""
        self.provider_response_id = provider_response_id or self.provider_response_id
        self.model_name = model_name or self.model_name
        if not self._started:
            self._started = True
            self.events.append(
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
        self.events.append(ErrorEvent(error))

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        """Close the turn and take what is left; `error` says what broke. Idempotent."""
        if not self._ended:
            self.start()
            if error is not None:
                self.fail(error)
            cut = cause != "eof" or self.finish_reason in ("length", "content_filter", "error")
            self._close_all(complete=not cut)
            self._ended = True
            self.events.append(
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

    # --- parts that stream ---------------------------------------------------------------------------------

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

        `signature` replaces an earlier one (an empty one is none), `details` merge. With `ends`, the wire will
        `close` the block itself.
        """
        open_ = self._open
        if open_ is None or open_.key != key or open_.kind is not ThinkingPart or signature or details:
            if text or signature or details:
                part = ThinkingPart("", id=id, provider_name=self.origin.provider, form=form)
                self._stream(key, item, part, text, None, signature, details, ends)
        elif text:
            # Nearly every call is this one, so it is not left to `_stream`.
            open_.text.add(text)
            self.events.append(PartDeltaEvent(self._parts, ThinkingPartDelta(text)))

    def more(self, text: str) -> None:
        """One more delta like the last, which was text of the open part and nothing else."""
        open_ = self._open
        if open_ is not None:
            open_.text.add(text)
            delta = ThinkingPartDelta(text) if open_.kind is ThinkingPart else TextPartDelta(text)
            self.events.append(PartDeltaEvent(self._parts, delta))

    def add_text(self, text: str) -> None:
        """Take more text of the open part, whose deltas are on their way already."""
        if self._open is not None:
            self._open.text.add(text)

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
        beside = signature or details or annotations or logprobs
        if open_ is None or open_.key != key or open_.kind is not TextPart or beside:
            if text or beside:
                part = TextPart("", id=id, provider_name=self.origin.provider if id else None)
                more = TextPartDelta(text, logprobs=logprobs or None, annotations=annotations or None)
                self._stream(key, item, part, text, more, signature, details, ends)
        elif text:
            open_.text.add(text)
            self.events.append(PartDeltaEvent(self._parts, TextPartDelta(text)))

    def refusal(self, key: Key, text: str, *, item: Key = "message", ends: bool = False) -> None:
        """More of the model's refusal."""
        if text:
            self._stream(key, item, RefusalPart(""), text, None, None, None, ends)

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
        part = None
        if name is not None or key in self._held_keys:
            part = ToolCallPart(
                name or "", "", call_id or "", id=id, provider_name=self.origin.provider if id else None
            )
        self._stream(key, None, part, args, None, signature, details, ends, name is not None)

    def builtin_call(
        self,
        key: Key,
        args: str | dict[str, Any] = "",
        *,
        name: str = "",
        call_id: str = "",
        item: Key = None,
        id: str | None = None,
        status: str | None = None,
        details: dict[str, Any] | None = None,
        ends: bool = False,
    ) -> None:
        """More of a call that the provider runs itself. `status` is how far it is, in the provider's word."""
        part = BuiltinToolCallPart(name, "", call_id, id=id, provider_name=self.origin.provider)
        more = None
        if status is not None or details:
            text = args if isinstance(args, str) else json_text(args)
            more = BuiltinToolCallPartDelta(text, status, provider_details=details or None)
        self._stream(key, item, part, args, more, None, None, ends)

    def close(self, key: Key, *, at_once: bool = False) -> None:
        """The wire said that block or item `key` is over (if it was never opened, this is nothing).

        `at_once`: the wire says no more of this part, so its end is told now, and not with whatever comes next.
        """
        if key in self._held_keys:
            self._hold(key, key, partial(self.close, key, at_once=at_once), sticky=True)
            return
        if self._open is not None and self._open.key == key:
            self._open.ends = False
            if at_once:
                self._close_part(complete=True)
        if self._item is not None and self._item.key == key:
            self._item.ends = False
        if self._held and not self._replaying and self._all_closable():
            self._let_go()

    def settle(self) -> None:
        """Nothing that is open goes on, whatever comes next."""
        if not (self.failed or self._ended):
            self._close_all(complete=True)

    # --- items and whole parts -----------------------------------------------------------------------------

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

        This is how reasoning without text exists: an encrypted blob, say, with nothing to show. An item of another
        kind in which nothing follows is incomplete. With `ends`, the wire will `close` the item itself, and
        other items wait for that.
        """
        if self.failed or self._ended:
            return
        item = self._item
        if item is None or item.key != key:
            again = partial(self.item, key, kind, id=id, signature=signature, native=native, ends=ends)
            if not self._make_room(key, key, again, sticky=True):
                return
            item = self._open_item(key, kind, id, ends)
        if signature:
            item.signature = signature
        if native is not None:
            item.native = native

    def whole(self, part: WholePart, *, item: Key = None) -> None:
        """A part that arrives in one piece. Parts with the same `item` key, one after the other, share an item."""
        if self.failed or self._ended:
            return
        key = item if item is not None else ("whole", self._parts, len(self._held or ()))
        kind = ITEM_OF[type(part)]
        if not self._make_room(key, key, partial(self.whole, part, item=key), kind):
            return
        if self._item is None:
            self._open_item(key, kind, None if isinstance(part, SealedPart) else part.id)
        self._item_parts += 1
        if _is_opaque(part):
            self._mark_opaque()
        self.events += whole_part(self._parts, part, self._last_kind)
        self._last_kind = part.part_kind
        self._parts += 1

    # --- the machinery -------------------------------------------------------------------------------------

    def _stream(
        self,
        key: Key,
        item: Key,
        part: ModelResponsePart | None,
        text: str | dict[str, Any],
        more: PartDelta | None,
        signature: str | None,
        details: dict[str, Any] | None,
        ends: bool,
        named: bool = True,
    ) -> None:
        """More of block `key`. Opens it as `part`, or holds all of this back; what is not `named` does not open a call,
        but waits with what does. (No `part`: a call that nothing waits for.)

        `text` is a call's arguments as well, as text or object. `more` is the delta of it, where that brings more
        than text. `signature` and `details` come in a delta of their own.
        """
        open_ = self._open
        kind = ToolCallPart if part is None else type(part)
        if open_ is None or open_.key != key or open_.kind is not kind:
            if part is None or not (named or key in self._held_keys):
                self._late_arguments(key, text)
                return
            again = partial(self._stream, key, item, part, text, more, signature, details, ends, named)
            open_ = self._admit(key, item, part, ends, again)
            if open_ is None:
                return
        if not isinstance(text, str):
            open_.object = None if open_.text.length else text
            text = json_text(text)
        elif text:
            open_.object = None  # text after an object: then it is text
        if more is not None and not is_text_alone(more):
            open_.text.add(text)
            self._add(open_, more)
        elif text:
            open_.text.add(text)
            self.events.append(PartDeltaEvent(self._parts, DELTA_OF[kind](text)))
        if signature or details:
            opaque = DELTA_OF[kind](
                signature_delta=signature or None,
                provider_name=self.origin.provider,
                provider_details=details or None,
            )
            self._add(open_, opaque)

    def _add(self, open_: _Open, delta: PartDelta) -> None:
        """Write a delta that brings more than text."""
        open_.add_rest(delta)
        if any(getattr(delta, name) for name in OPAQUE_FIELDS.values()):
            self._mark_opaque()
        self.events.append(PartDeltaEvent(self._parts, delta))

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
        kind = ITEM_OF[type(part)]
        if not self._make_room(key, item_key, again, kind, sticky=ends or isinstance(part, ToolCallPart)):
            return None
        if self._item is None:
            self._open_item(item_key, kind, getattr(part, "id", None))
        self._item_parts += 1
        self.events.append(PartStartEvent(self._parts, part, self._last_kind))
        self._open = _Open(key, part, ends)
        if isinstance(part, ToolCallPart):
            self._calls[key] = part.tool_call_id
        return self._open

    def _make_room(
        self,
        key: Key,
        item_key: Key,
        again: Callable[[], None],
        kind: ItemKind | None = None,
        *,
        sticky: bool = False,
    ) -> bool:
        """Close the open part, and the open item if another one is meant; or hold `again` back.

        What is open may have to stay (see the rules above), and nothing overtakes what is already waiting.
        `sticky` says that the key names one block for good, so that all of it waits together.
        """
        if self._held and not self._replaying and self._all_closable():
            # What was open has become whole since: those who waited come first, and then this.
            self._hold(key, item_key, again, sticky)
            self._let_go()
            return False
        item = self._item
        stays = item is None or (item.key == item_key and kind in (None, item.kind))
        overtakes = bool(self._held) and not self._replaying
        waits = overtakes and not (stays and item is not None and key not in self._held_keys)
        if self._open is not None:
            waits = waits or not self._open.may_close()
        if waits or (item is not None and not stays and item.ends):
            self._hold(key, item_key, again, sticky)
            return False
        self._close_part(complete=True)
        if not stays:
            self._close_item()
        return True

    def _all_closable(self) -> bool:
        return (self._open is None or self._open.may_close()) and (self._item is None or not self._item.ends)

    def _hold(self, key: Key, item_key: Key, call: Callable[[], None], sticky: bool) -> None:
        if self._replaying:
            self._blocked = True
            return
        self.holds += 1
        if self._held is None:
            self._held = deque()
        block = self._held_keys.get(key) or self._held_keys.get(item_key)
        if block is None or not (sticky or block is self._held[-1]):
            block = _Waiting()
            self._held.append(block)
        block.calls.append(call)
        # An item's key is known when the item itself had to wait; several blocks may share one that did not.
        block.keys.add(key)
        self._held_keys[key] = block

    def _let_go(self, *, complete: bool = True) -> None:
        """Close what is open and replay the blocks that waited, as far as each can be closed for the next."""
        self._close_part(complete=complete)
        self._close_item()
        while self._held:
            block = self._held.popleft()
            for name in block.keys:
                if self._held_keys.get(name) is block:
                    del self._held_keys[name]
            left = self._replay(block.calls)
            if left:
                block.calls = left
                self._held.appendleft(block)
                self._held_keys |= dict.fromkeys(block.keys, block)
            if left or not self._all_closable():
                break

    def _replay(self, calls: list[Callable[[], None]]) -> list[Callable[[], None]]:
        """Say again what was held back; what still has to wait is given back."""
        self._replaying = True
        try:
            for number, call in enumerate(calls):
                self._blocked = False
                call()
                if self._blocked:
                    return calls[number:]
            return []
        finally:
            self._replaying = self._blocked = False

    def _open_item(self, key: Key, kind: ItemKind, native_id: str | None, ends: bool = False) -> _Item:
        self.start()
        self._close_item()
        self.events.append(ItemStartEvent(self._items, kind, native_id=native_id))
        self._item = _Item(key, kind, self._items, ends)
        self._item_parts = 0
        self._cut = False
        return self._item

    def _close_part(self, *, complete: bool) -> None:
        open_ = self._open
        if open_ is None:
            return
        # A call whose arguments are whole is whole, whatever became of the turn.
        complete = complete or (open_.kind is ToolCallPart and open_.is_json())
        self._cut = self._cut or not complete
        part = open_.whole(complete)
        self._open = None
        self.events.append(PartEndEvent(self._parts, part))
        self._last_kind = part.part_kind
        self._parts += 1

    def _close_item(self) -> None:
        item = self._item
        if item is None:
            return
        self._item = None
        self._items += 1
        empty = not self._item_parts and item.kind != "reasoning"
        opaque = item.opaque or item.signature is not None or item.native is not None
        self.events.append(
            ItemEndEvent(
                item.index,
                "incomplete" if self._cut or empty else "completed",
                signature=item.signature,
                native=item.native,
                origin=self.origin if opaque else None,
            )
        )

    def _close_all(self, *, complete: bool) -> None:
        """Close everything. What was held back is written now, so more than one block can turn out to be cut."""
        while self._held:
            if self._open is not None:
                self._open.ends = False
            if self._item is not None:
                self._item.ends = False
            self._let_go(complete=complete)
        if self._open is None and self._item is not None and not complete and not self._item_parts:
            self._cut = True
        self._close_part(complete=complete)
        self._close_item()

    def _mark_opaque(self) -> None:
        if self._item is not None:
            self._item.opaque = True

    def _late_arguments(self, key: Key, args: str | dict[str, Any]) -> None:
        """Arguments for a call that was whole already, or was never named: kept, but not part of any call."""
        if isinstance(args, dict) or args.strip():
            late = self.provider_details.setdefault("late_arguments", [])
            late.append({"tool_call_id": self._calls.get(key), "arguments": args})


def whole_part(index: int, part: ModelResponsePart, last_kind: str | None) -> list[ModelEvent]:
    """The events of a part that is already whole."""
    start, rest = split_part(part)
    out: list[ModelEvent] = [PartStartEvent(index, start, last_kind)]
    if rest is not None:
        out.append(PartDeltaEvent(index, rest))
    out.append(PartEndEvent(index, part))
    return out


def _is_opaque(part: ModelResponsePart) -> bool:
    """Whether the part holds something that only its maker understands."""
    return isinstance(part, OpaquePart | SealedPart) or has_opaque(part)


def replay(response: ModelResponse) -> list[ModelEvent]:
    """The events of a response that is already whole. `fold` gives the same response back, if `fold` made it."""
    origin = response.origin or Origin("unknown", "unknown", response.model_name or "unknown")
    out: list[ModelEvent] = [ResponseStartEvent(origin, response.provider_response_id, response.model_name)]
    index, last_kind = 0, None
    for item_index, parts in enumerate(items_of(response.parts)):
        first = parts[0]
        out.append(ItemStartEvent(item_index, ITEM_OF[type(first)], first.item_id, getattr(first, "id", None)))
        for part in parts:
            # A thought of which only the fact (or its signature on the item) is known has no part events.
            if not isinstance(part, ThinkingPart) or part.content or has_opaque(part):
                out += whole_part(index, part, last_kind)
                index, last_kind = index + 1, part.part_kind
        whole = all(getattr(part, "complete", True) for part in parts)
        opaque = any(has_opaque(part) or isinstance(part, OpaquePart) for part in parts)
        out.append(ItemEndEvent(item_index, "completed" if whole else "incomplete", origin=origin if opaque else None))
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


def items_of(parts: list[ModelResponsePart]) -> list[list[ModelResponsePart]]:
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
