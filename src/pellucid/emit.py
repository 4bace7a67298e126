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

from .accumulator import PartAccumulator, is_text_only, split_part
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
    has_opaque_data,
    json_text,
)
from .unicode import TextBuffer

Key = Hashable

WholePart = BuiltinToolCallPart | BuiltinToolReturnPart | FilePart | CompactionPart | OpaquePart | SealedPart
"""Parts that arrive in one piece."""


class _HeldBlock:
    """A block that has to wait: what was said of it."""

    __slots__ = ("calls", "keys")

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.keys: set[Key] = set()


class _Item:
    """The open item, and what is to stand on its end."""

    __slots__ = ("explicit_end", "has_opaque_data", "index", "key", "kind", "native", "signature")

    def __init__(self, key: Key, kind: ItemKind, index: int, explicit_end: bool) -> None:
        self.key = key
        self.kind = kind
        self.index = index
        self.explicit_end = explicit_end
        self.has_opaque_data = False
        """Whether a part of it carries opaque data."""
        self.signature: str | None = None
        self.native: Any = None


class _OpenPart(PartAccumulator):
    """The open part."""

    __slots__ = ("checked_length", "explicit_end", "key", "kind")

    def __init__(self, key: Key, part: ModelResponsePart, explicit_end: bool) -> None:
        super().__init__(part)
        self.key = key
        self.kind = type(part)
        self.explicit_end = explicit_end
        self.checked_length = -1

    def can_close(self) -> bool:
        """Whether nothing more of it need come."""
        return not self.explicit_end and (self.kind is not ToolCallPart or self.is_complete_json())

    def is_complete_json(self) -> bool:
        """Whether its text is whole JSON."""
        length = self.text.length
        end = self.text.text_from(length - _TAIL_CHARS).rstrip()
        # What ends in the middle of an object need not be parsed to know it.
        if self.checked_length == length or (end and not end.endswith(_JSON_ENDINGS)):
            return False
        if is_complete_json(self.text.value()):
            return True
        # Not parsed again for every delta that has to wait.
        self.checked_length = length
        return False


_TAIL_CHARS = 32
"""Characters at the end of arguments that are looked at before all of them are parsed."""
_JSON_ENDINGS = ("}", "]", '"', "e", "l", *"0123456789")


def is_complete_json(text: str) -> bool:
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
        self._open_part: _OpenPart | None = None
        self._item_index = 0
        self._item_part_count = 0
        self._item_is_cut_off = False
        """Whether a part of the open item was cut off."""
        self._part_index = 0
        self._last_part_kind: str | None = None
        self._started = False
        self._ended = False
        self._held_blocks: deque[_HeldBlock] | None = None
        """What has to wait, block by block, in the order in which the blocks came; most turns have nothing."""
        self._held_by_key: dict[Key, _HeldBlock] = {}
        self.hold_count = 0
        """How often something had to wait."""
        self._is_replaying = False
        self._is_blocked = False
        self._call_ids: dict[Key, str] = {}

    def take(self) -> list[ModelEvent]:
        """The events written since the last call. (What is read for every token does this for itself.)"""
        events = self.events
        self.events = []
        return events

    def is_open(self, key: Key) -> bool:
        """Whether block `key` is the part that is open."""
        return self._open_part is not None and self._open_part.key == key

    def text_of(self, key: Key) -> TextBuffer | None:
        """What block `key` holds so far, while it is the part that is open. To be read, not written."""
        return self._open_part.text if self._open_part is not None and self._open_part.key == key else None

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
        explicit_end: bool = False,
    ) -> None:
        """More reasoning in block `key` of item `item` (by default an item of its own).

        `signature` replaces an earlier one (an empty one is none), `details` merge. With `ends`, the wire will
        `close` the block itself.
        """
        open_ = self._open_part
        if open_ is None or open_.key != key or open_.kind is not ThinkingPart or signature or details:
            if text or signature or details:
                part = ThinkingPart("", id=id, provider_name=self.origin.provider, form=form)
                self._stream_delta(key, item, part, text, None, signature, details, explicit_end)
        elif text:
            # Nearly every call is this one, so it is not left to `_stream_delta`.
            open_.text.add(text)
            self.events.append(PartDeltaEvent(self._part_index, ThinkingPartDelta(text)))

    def append_text_delta(self, text: str) -> None:
        """One more delta like the last, which was text of the open part and nothing else."""
        open_ = self._open_part
        if open_ is not None:
            open_.text.add(text)
            delta = ThinkingPartDelta(text) if open_.kind is ThinkingPart else TextPartDelta(text)
            self.events.append(PartDeltaEvent(self._part_index, delta))

    def add_text(self, text: str) -> None:
        """Take more text of the open part, whose deltas are on their way already."""
        if self._open_part is not None:
            self._open_part.text.add(text)

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
        explicit_end: bool = False,
    ) -> None:
        """More answer. Text parts of one `item` make one message; `logprobs` and `annotations` append."""
        open_ = self._open_part
        extra = signature or details or annotations or logprobs
        if open_ is None or open_.key != key or open_.kind is not TextPart or extra:
            if text or extra:
                part = TextPart("", id=id, provider_name=self.origin.provider if id else None)
                delta = TextPartDelta(text, logprobs=logprobs or None, annotations=annotations or None)
                self._stream_delta(key, item, part, text, delta, signature, details, explicit_end)
        elif text:
            open_.text.add(text)
            self.events.append(PartDeltaEvent(self._part_index, TextPartDelta(text)))

    def refusal(self, key: Key, text: str, *, item: Key = "message", explicit_end: bool = False) -> None:
        """More of the model's refusal."""
        if text:
            self._stream_delta(key, item, RefusalPart(""), text, None, None, None, explicit_end)

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
        explicit_end: bool = False,
    ) -> None:
        """More of a function call. Opens when `name` is given; `args` is JSON text, or the whole object."""
        part = None
        if name is not None or key in self._held_by_key:
            part = ToolCallPart(
                name or "", "", call_id or "", id=id, provider_name=self.origin.provider if id else None
            )
        self._stream_delta(key, None, part, args, None, signature, details, explicit_end, name is not None)

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
        explicit_end: bool = False,
    ) -> None:
        """More of a call that the provider runs itself. `status` is how far it is, in the provider's word."""
        part = BuiltinToolCallPart(name, "", call_id, id=id, provider_name=self.origin.provider)
        delta = None
        if status is not None or details:
            text = args if isinstance(args, str) else json_text(args)
            delta = BuiltinToolCallPartDelta(text, status, provider_details=details or None)
        self._stream_delta(key, item, part, args, delta, None, None, explicit_end)

    def close(self, key: Key, *, at_once: bool = False) -> None:
        """The wire said that block or item `key` is over (if it was never opened, this is nothing).

        `at_once`: the wire says no more of this part, so its end is told now, and not with whatever comes next.
        """
        if key in self._held_by_key:
            self._hold(key, key, partial(self.close, key, at_once=at_once), sticky=True)
            return
        if self._open_part is not None and self._open_part.key == key:
            self._open_part.explicit_end = False
            if at_once:
                self._close_part(complete=True)
        if self._item is not None and self._item.key == key:
            self._item.explicit_end = False
        if self._held_blocks and not self._is_replaying and self._can_close_all():
            self._release_held()

    def close_open_blocks(self) -> None:
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
        explicit_end: bool = False,
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
            deferred_call = partial(
                self.item, key, kind, id=id, signature=signature, native=native, explicit_end=explicit_end
            )
            if not self._close_or_hold(key, key, deferred_call, sticky=True):
                return
            item = self._open_item(key, kind, id, explicit_end)
        if signature:
            item.signature = signature
        if native is not None:
            item.native = native

    def whole_part(self, part: WholePart, *, item: Key = None) -> None:
        """A part that arrives in one piece. Parts with the same `item` key, one after the other, share an item."""
        if self.failed or self._ended:
            return
        key = item if item is not None else ("whole", self._part_index, len(self._held_blocks or ()))
        kind = ITEM_OF[type(part)]
        if not self._close_or_hold(key, key, partial(self.whole_part, part, item=key), kind):
            return
        if self._item is None:
            self._open_item(key, kind, None if isinstance(part, SealedPart) else part.id)
        self._item_part_count += 1
        if _has_opaque_content(part):
            self._mark_opaque()
        self.events += part_events(self._part_index, part, self._last_part_kind)
        self._last_part_kind = part.part_kind
        self._part_index += 1

    # --- the machinery -------------------------------------------------------------------------------------

    def _stream_delta(
        self,
        key: Key,
        item: Key,
        part: ModelResponsePart | None,
        text: str | dict[str, Any],
        delta: PartDelta | None,
        signature: str | None,
        details: dict[str, Any] | None,
        explicit_end: bool,
        opens_call: bool = True,
    ) -> None:
        """More of block `key`. Opens it as `part`, or holds all of this back; what is not `named` does not open a call,
        but waits with what does. (No `part`: a call that nothing waits for.)

        `text` is a call's arguments as well, as text or object. `more` is the delta of it, where that brings more
        than text. `signature` and `details` come in a delta of their own.
        """
        open_ = self._open_part
        kind = ToolCallPart if part is None else type(part)
        if open_ is None or open_.key != key or open_.kind is not kind:
            if part is None or not (opens_call or key in self._held_by_key):
                self._record_late_arguments(key, text)
                return
            deferred_call = partial(
                self._stream_delta, key, item, part, text, delta, signature, details, explicit_end, opens_call
            )
            open_ = self._start_part(key, item, part, explicit_end, deferred_call)
            if open_ is None:
                return
        if not isinstance(text, str):
            open_.args_object = None if open_.text.length else text
            text = json_text(text)
        elif text:
            open_.args_object = None  # text after an object: then it is text
        if delta is not None and not is_text_only(delta):
            open_.text.add(text)
            self._write_delta(open_, delta)
        elif text:
            open_.text.add(text)
            self.events.append(PartDeltaEvent(self._part_index, DELTA_OF[kind](text)))
        if signature or details:
            opaque_delta = DELTA_OF[kind](
                signature_delta=signature or None,
                provider_name=self.origin.provider,
                provider_details=details or None,
            )
            self._write_delta(open_, opaque_delta)

    def _write_delta(self, open_: _OpenPart, delta: PartDelta) -> None:
        """Write a delta that brings more than text."""
        open_.add_metadata(delta)
        if any(getattr(delta, name) for name in OPAQUE_FIELDS.values()):
            self._mark_opaque()
        self.events.append(PartDeltaEvent(self._part_index, delta))

    def _start_part(
        self,
        key: Key,
        item: Key,
        part: ModelResponsePart,
        explicit_end: bool,
        deferred_call: Callable[[], None],
    ) -> _OpenPart | None:
        """Open `part`, closing what can be closed. None when it must wait, or the turn is over."""
        if self.failed or self._ended:
            return None
        item_key = key if item is None else item
        kind = ITEM_OF[type(part)]
        if not self._close_or_hold(
            key, item_key, deferred_call, kind, sticky=explicit_end or isinstance(part, ToolCallPart)
        ):
            return None
        if self._item is None:
            self._open_item(item_key, kind, getattr(part, "id", None))
        self._item_part_count += 1
        self.events.append(PartStartEvent(self._part_index, part, self._last_part_kind))
        self._open_part = _OpenPart(key, part, explicit_end)
        if isinstance(part, ToolCallPart):
            self._call_ids[key] = part.tool_call_id
        return self._open_part

    def _close_or_hold(
        self,
        key: Key,
        item_key: Key,
        deferred_call: Callable[[], None],
        kind: ItemKind | None = None,
        *,
        sticky: bool = False,
    ) -> bool:
        """Close the open part, and the open item if another one is meant; or hold `again` back.

        What is open may have to stay (see the rules above), and nothing overtakes what is already waiting.
        `sticky` says that the key names one block for good, so that all of it waits together.
        """
        if self._held_blocks and not self._is_replaying and self._can_close_all():
            # What was open has become whole since: those who waited come first, and then this.
            self._hold(key, item_key, deferred_call, sticky)
            self._release_held()
            return False
        item = self._item
        item_stays = item is None or (item.key == item_key and kind in (None, item.kind))
        overtakes = bool(self._held_blocks) and not self._is_replaying
        must_wait = overtakes and not (item_stays and item is not None and key not in self._held_by_key)
        if self._open_part is not None:
            must_wait = must_wait or not self._open_part.can_close()
        if must_wait or (item is not None and not item_stays and item.explicit_end):
            self._hold(key, item_key, deferred_call, sticky)
            return False
        self._close_part(complete=True)
        if not item_stays:
            self._close_item()
        return True

    def _can_close_all(self) -> bool:
        return (self._open_part is None or self._open_part.can_close()) and (
            self._item is None or not self._item.explicit_end
        )

    def _hold(self, key: Key, item_key: Key, call: Callable[[], None], sticky: bool) -> None:
        if self._is_replaying:
            self._is_blocked = True
            return
        self.hold_count += 1
        if self._held_blocks is None:
            self._held_blocks = deque()
        block = self._held_by_key.get(key) or self._held_by_key.get(item_key)
        if block is None or not (sticky or block is self._held_blocks[-1]):
            block = _HeldBlock()
            self._held_blocks.append(block)
        block.calls.append(call)
        # An item's key is known when the item itself had to wait; several blocks may share one that did not.
        block.keys.add(key)
        self._held_by_key[key] = block

    def _release_held(self, *, complete: bool = True) -> None:
        """Close what is open and replay the blocks that waited, as far as each can be closed for the next."""
        self._close_part(complete=complete)
        self._close_item()
        while self._held_blocks:
            block = self._held_blocks.popleft()
            for held_key in block.keys:
                if self._held_by_key.get(held_key) is block:
                    del self._held_by_key[held_key]
            remaining = self._replay(block.calls)
            if remaining:
                block.calls = remaining
                self._held_blocks.appendleft(block)
                self._held_by_key |= dict.fromkeys(block.keys, block)
            if remaining or not self._can_close_all():
                break

    def _replay(self, calls: list[Callable[[], None]]) -> list[Callable[[], None]]:
        """Say again what was held back; what still has to wait is given back."""
        self._is_replaying = True
        try:
            for number, call in enumerate(calls):
                self._is_blocked = False
                call()
                if self._is_blocked:
                    return calls[number:]
            return []
        finally:
            self._is_replaying = self._is_blocked = False

    def _open_item(self, key: Key, kind: ItemKind, native_id: str | None, explicit_end: bool = False) -> _Item:
        self.start()
        self._close_item()
        self.events.append(ItemStartEvent(self._item_index, kind, native_id=native_id))
        self._item = _Item(key, kind, self._item_index, explicit_end)
        self._item_part_count = 0
        self._item_is_cut_off = False
        return self._item

    def _close_part(self, *, complete: bool) -> None:
        open_ = self._open_part
        if open_ is None:
            return
        # A call whose arguments are whole is whole, whatever became of the turn.
        complete = complete or (open_.kind is ToolCallPart and open_.is_complete_json())
        self._item_is_cut_off = self._item_is_cut_off or not complete
        part = open_.result(complete)
        self._open_part = None
        self.events.append(PartEndEvent(self._part_index, part))
        self._last_part_kind = part.part_kind
        self._part_index += 1

    def _close_item(self) -> None:
        item = self._item
        if item is None:
            return
        self._item = None
        self._item_index += 1
        is_empty = not self._item_part_count and item.kind != "reasoning"
        has_opaque = item.has_opaque_data or item.signature is not None or item.native is not None
        self.events.append(
            ItemEndEvent(
                item.index,
                "incomplete" if self._item_is_cut_off or is_empty else "completed",
                signature=item.signature,
                native=item.native,
                origin=self.origin if has_opaque else None,
            )
        )

    def _close_all(self, *, complete: bool) -> None:
        """Close everything. What was held back is written now, so more than one block can turn out to be cut."""
        while self._held_blocks:
            if self._open_part is not None:
                self._open_part.explicit_end = False
            if self._item is not None:
                self._item.explicit_end = False
            self._release_held(complete=complete)
        if self._open_part is None and self._item is not None and not complete and not self._item_part_count:
            self._item_is_cut_off = True
        self._close_part(complete=complete)
        self._close_item()

    def _mark_opaque(self) -> None:
        if self._item is not None:
            self._item.has_opaque_data = True

    def _record_late_arguments(self, key: Key, args: str | dict[str, Any]) -> None:
        """Arguments for a call that was whole already, or was never named: kept, but not part of any call."""
        if isinstance(args, dict) or args.strip():
            late = self.provider_details.setdefault("late_arguments", [])
            late.append({"tool_call_id": self._call_ids.get(key), "arguments": args})


def part_events(index: int, part: ModelResponsePart, last_kind: str | None) -> list[ModelEvent]:
    """The events of a part that is already whole."""
    start, rest = split_part(part)
    out: list[ModelEvent] = [PartStartEvent(index, start, last_kind)]
    if rest is not None:
        out.append(PartDeltaEvent(index, rest))
    out.append(PartEndEvent(index, part))
    return out


def _has_opaque_content(part: ModelResponsePart) -> bool:
    """Whether the part holds something that only its maker understands."""
    return isinstance(part, OpaquePart | SealedPart) or has_opaque_data(part)


def response_events(response: ModelResponse) -> list[ModelEvent]:
    """The events of a response that is already whole. `fold` gives the same response back, if `fold` made it."""
    origin = response.origin or Origin("unknown", "unknown", response.model_name or "unknown")
    out: list[ModelEvent] = [ResponseStartEvent(origin, response.provider_response_id, response.model_name)]
    index, last_kind = 0, None
    for item_index, parts in enumerate(group_into_items(response.parts)):
        first = parts[0]
        out.append(ItemStartEvent(item_index, ITEM_OF[type(first)], first.item_id, getattr(first, "id", None)))
        for part in parts:
            # A thought of which only the fact (or its signature on the item) is known has no part events.
            if not isinstance(part, ThinkingPart) or part.content or has_opaque_data(part):
                out += part_events(index, part, last_kind)
                index, last_kind = index + 1, part.part_kind
        whole = all(getattr(part, "complete", True) for part in parts)
        opaque = any(has_opaque_data(part) or isinstance(part, OpaquePart) for part in parts)
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


def group_into_items(parts: list[ModelResponsePart]) -> list[list[ModelResponsePart]]:
    """Neighbours with one `item_id` and one kind of item belong together; a part without an id stands alone."""
    items: list[list[ModelResponsePart]] = []
    for part in parts:
        last = items[-1][-1] if items else None
        is_same_item = (
            last is not None
            and last.item_id is not None
            and last.item_id == part.item_id
            and ITEM_OF[type(last)] == ITEM_OF[type(part)]
        )
        if is_same_item:
            items[-1].append(part)
        else:
            items.append([part])
    return items
