"""Writer of legal event sequences.

A decoder reports what it reads (`thinking`, `text`, `tool_call`, …) under the key that its wire gives the block. The
emitter decides which items and parts open and close. So a decoder cannot write an illegal sequence, and no decoder
repeats this bookkeeping. The rules:

* **Nothing opens before it has content.** An empty delta for a block that is not open is ignored. Reasoning does not
  open with white space alone: that is kept until more comes, and is nothing if nothing does.
* **One part is open at a time.** A new key closes the open part if that part can be closed. Reasoning and text on wires
  without block ends can always be closed; a block that the wire ends explicitly (`explicit_end=True`) only after
  `close`; a call only when its arguments are complete JSON. Otherwise the later block is held back, whole and in order,
  until the earlier one can be closed.
* **Closing is lazy.** `close` marks a block as over. Its end events are written when something follows or the turn
  ends, because only then is it known whether the model was cut off in it (Anthropic closes its block first and reports
  `max_tokens` afterwards).
* **A failure is an event.** `fail` closes what is open as incomplete and writes one `ErrorEvent`. A second failure, or
  content after it, is ignored.
* **A limit ends the turn.** `cut` closes what is open as incomplete, and the finish reason is `length`. Content after
  it is ignored. Items are compared with `TurnLimits` when they open; the reader of the stream checks the rest
  (`exceeded_limit`).
* **`end` always leaves a closed turn**, and calling it again changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from sys import maxsize
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

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
    are_complete,
    has_opaque_data,
    json_text,
)
from .unicode import TextBuffer

Key = Hashable

WholePart = BuiltinToolCallPart | BuiltinToolReturnPart | FilePart | CompactionPart | OpaquePart | SealedPart
"""Parts that arrive in one piece."""


TurnLimit: TypeAlias = Literal[
    "turn_bytes", "turn_seconds", "turn_characters", "turn_items", "tool_argument_characters"
]
"""The name of a limit of one turn, as in `[limits]` of the configuration."""
TURN_LIMITS: frozenset[str] = frozenset(get_args(TurnLimit))
CutReason: TypeAlias = TurnLimit | Literal["repetition"]
"""Why a turn is cut: a limit, or text that only repeats itself."""


class TurnLimits(NamedTuple):
    """The most that a turn may contain."""

    characters: int = maxsize
    """Characters of all text, arguments of calls included."""
    argument_characters: int = maxsize
    """Characters of the arguments of one call."""
    items: int = maxsize
    """Items, and parts of them."""


_LONG_TEXT = 65_536
"""Characters from which on the text of one frame is compared with the limits before it is written."""
_MAX_HELD_PER_ITEM = 32
"""Deltas that may be held back, for each item that a turn may have."""


class _HeldBlock:
    """A block that is held back: the calls to repeat when it can be written, and its keys."""

    __slots__ = ("calls", "keys")

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.keys: set[Key] = set()


class _Item:
    """The open item, and the data for its end event."""

    __slots__ = ("explicit_end", "has_opaque_data", "index", "key", "kind", "native", "signature")

    def __init__(self, key: Key, kind: ItemKind, index: int, explicit_end: bool) -> None:
        self.key = key
        self.kind = kind
        self.index = index
        self.explicit_end = explicit_end
        self.has_opaque_data = False
        """Whether a part of the item carries opaque data."""
        self.signature: str | None = None
        self.native: Any = None


class _OpenPart(PartAccumulator):
    """The open part."""

    __slots__ = ("checked_length", "explicit_end", "key", "kind", "signature_pieces")

    def __init__(self, key: Key, part: ModelResponsePart, explicit_end: bool) -> None:
        super().__init__(part)
        self.key = key
        self.kind = type(part)
        self.explicit_end = explicit_end
        """Whether the wire ends the block itself, and has not done so yet."""
        self.signature_pieces: list[str] = []
        """The signature so far, of a part whose signature is written when it ends."""
        self.checked_length = -1
        """The length at which the text was found to be incomplete JSON, so that it is parsed once for each length."""

    def can_close(self) -> bool:
        """Whether another part may open now, which ends this one."""
        return not self.explicit_end and (self.kind is not ToolCallPart or self.is_complete_json())

    def is_complete_json(self) -> bool:
        """Whether the part's text is complete JSON."""
        length = self.text.length
        end = self.text.text_from(length - _TAIL_CHARS).rstrip()
        # Text that cannot be the end of JSON need not be parsed.
        if self.checked_length == length or (end and not end.endswith(_JSON_ENDINGS)):
            return False
        if is_complete_json(self.text.value()):
            return True
        self.checked_length = length
        return False


_TAIL_CHARS = 32
"""Characters at the end of arguments that are checked before the arguments are parsed."""
_JSON_ENDINGS = ("}", "]", '"', "e", "l", *"0123456789")


def is_complete_json(text: str) -> bool:
    """Whether a call's arguments are complete JSON."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


class Emitter:
    """Writes the events of one model turn. `take()` returns the events written since the last call.

    Args:
        origin: The model and provider of the turn.
    """

    # Without slots, so many attributes would be a dictionary of each instance, of more than 1 KiB.
    __slots__ = (
        "_accepts_content",
        "_blank_texts",
        "_call_ids",
        "_closed_characters",
        "_ended",
        "_held_blocks",
        "_held_by_key",
        "_held_characters",
        "_is_blocked",
        "_is_replaying",
        "_item",
        "_item_index",
        "_item_is_cut_off",
        "_item_part_count",
        "_last_part_kind",
        "_open_part",
        "_part_index",
        "_started",
        "events",
        "failed",
        "finish_reason",
        "hold_count",
        "limits",
        "model_name",
        "native_finish_reason",
        "origin",
        "provider_details",
        "provider_response_id",
        "reached_limit",
        "thinking_form",
        "usage",
    )

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
        """Events written since the last `take`."""
        self.thinking_form: Form = "raw"
        """The form of reasoning that is written without one."""
        self.limits = TurnLimits()
        self.reached_limit: CutReason | None = None
        """The limit at which the content of the turn was cut."""
        self._accepts_content = True
        """Whether the turn has not failed, was not cut and has not ended."""
        self._closed_characters = 0
        """Characters of the parts that have ended."""
        self._held_characters = 0
        """Characters of the blocks that are held back."""
        self._item: _Item | None = None
        self._open_part: _OpenPart | None = None
        self._item_index = 0
        self._item_part_count = 0
        self._item_is_cut_off = False
        """Whether a part of the open item is cut off."""
        self._part_index = 0
        self._last_part_kind: str | None = None
        self._started = False
        self._ended = False
        self._held_blocks: deque[_HeldBlock] | None = None
        """The blocks that are held back, in the order in which they came; None in most turns."""
        self._held_by_key: dict[Key, _HeldBlock] = {}
        self.hold_count = 0
        """How often something was held back."""
        self._is_replaying = False
        self._is_blocked = False
        self._call_ids: dict[Key, str] = {}
        self._blank_texts: dict[Key, str] = {}
        """White space at the beginning of reasoning that has not opened yet, by block."""

    def take(self) -> list[ModelEvent]:
        """Return the events written since the last call. The path of single tokens reads `events` itself."""
        events = self.events
        self.events = []
        return events

    def is_open(self, key: Key) -> bool:
        """Whether block `key` is the open part."""
        return self._open_part is not None and self._open_part.key == key

    def open_text(self, key: Key) -> TextBuffer | None:
        """Return the text of block `key` so far, if it is the open part. The caller must not write to it."""
        return self._open_part.text if self._open_part is not None and self._open_part.key == key else None

    # --- the turn ------------------------------------------------------------------------------------------

    def start(self, provider_response_id: str | None = None, model_name: str | None = None) -> None:
        """Record the response's id and model, and start the turn. Values of a later call appear on the turn's end."""
        self.provider_response_id = provider_response_id or self.provider_response_id
        self.model_name = model_name or self.model_name
        if not self._started:
            self._started = True
            self.events.append(
                ResponseStartEvent(self.origin, self.provider_response_id, self.model_name),
            )

    def finish(self, reason: FinishReason | None, native: str | None = None) -> None:
        """Record why the provider stopped. The turn ends only with `end`, because usage may still follow."""
        if self.reached_limit is None:
            self.finish_reason = reason
            self.native_finish_reason = native

    def fail(self, error: ErrorInfo) -> None:
        """Close what is open as incomplete, and write the error. A second failure is ignored."""
        if not self._accepts_content:
            return
        self.start()
        self._close_all(complete=False)
        self.failed = True
        self._accepts_content = False
        self.events.append(ErrorEvent(error))

    def cut(self, limit: CutReason) -> None:
        """Close what is open as incomplete, because the turn has reached a limit. Content after it is ignored."""
        if self._accepts_content and self.reached_limit is None:
            self.start()
            self.finish("length", limit)
            self.reached_limit = limit  # before held blocks are written, which may exceed a limit themselves
            self._close_all(complete=False)
            self._accepts_content = False

    def exceeded_limit(self) -> TurnLimit | None:
        """Return the limit that the content exceeds, if any. Items are also counted when they open."""
        open_, limits = self._open_part, self.limits
        length = 0 if open_ is None else open_.text.length
        blank_length = sum(map(len, self._blank_texts.values())) if self._blank_texts else 0
        if self._closed_characters + length + self._held_characters + blank_length > limits.characters:
            return "turn_characters"
        if length > limits.argument_characters and open_ is not None and open_.kind is ToolCallPart:
            return "tool_argument_characters"
        if self.hold_count + len(self._blank_texts) > limits.items * _MAX_HELD_PER_ITEM:
            return "turn_items"
        return None

    def end(self, cause: Cause = "eof", error: ErrorInfo | None = None) -> list[ModelEvent]:
        """Close the turn and return the remaining events. Idempotent.

        Args:
            cause: Why the turn ends.
            error: The failure that ends it, if any.
        """
        if not self._ended:
            self.start()
            if error is not None:
                self.fail(error)
            cut = cause != "eof" or self.finish_reason in ("length", "content_filter", "error")
            self._close_all(complete=not cut)
            self._ended = True
            self._accepts_content = False
            self.events.append(
                ResponseEndEvent(
                    finish_reason="error" if self.failed or cause == "error" else self.finish_reason,
                    native_finish_reason=self.native_finish_reason,
                    usage=self.usage.plausible,
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
        form: Form | None = None,
        id: str | None = None,
        signature: str | None = None,
        details: dict[str, Any] | None = None,
        explicit_end: bool = False,
    ) -> None:
        """Write reasoning to block `key`.

        Args:
            key: The wire's key of the block.
            text: The text to append.
            item: The key of the item; by default the block is an item of its own.
            form: The form of the text; by default `thinking_form`.
            id: The provider's id.
            signature: Replaces an earlier signature; an empty one is ignored.
            details: Provider details, merged with earlier ones.
            explicit_end: Whether the wire ends the block itself, so that `close` will be called.
        """
        open_ = self._open_part
        if open_ is None or open_.key != key or open_.kind is not ThinkingPart or signature or details:
            if text or signature or details:
                if not self.is_open(key) and key not in self._held_by_key:
                    text = self._blank_texts.pop(key, "") + text
                    if not (signature or details or text.strip()):
                        self._blank_texts[key] = text
                        return
                part = ThinkingPart("", id=id, provider_name=self.origin.provider, form=form or self.thinking_form)
                self._stream_delta(key, item, part, text, None, signature, details, explicit_end)
        elif text:
            # Nearly every call takes this path, so it avoids `_stream_delta`.
            open_.text.add(text)
            self.events.append(PartDeltaEvent(self._part_index, ThinkingPartDelta(text)))

    def append_signature(self, key: Key, piece: str) -> bool:
        """Append to the signature of block `key`, if it is the open part and reasoning.

        The signature is written once, when the part ends: there may be thousands of pieces.

        Returns:
            Whether the block is the open part.
        """
        open_ = self._open_part
        if open_ is None or open_.key != key or open_.kind is not ThinkingPart:
            return False
        if not open_.signature_pieces:
            open_.signature_pieces.append(open_.metadata.get("signature") or "")
        open_.signature_pieces.append(piece)
        return True

    def append_text_delta(self, text: str) -> None:
        """Write one more delta of the open part that has text only, like the last delta."""
        open_ = self._open_part
        if open_ is not None:
            open_.text.add(text)
            delta = ThinkingPartDelta(text) if open_.kind is ThinkingPart else TextPartDelta(text)
            self.events.append(PartDeltaEvent(self._part_index, delta))

    def add_text(self, text: str) -> None:
        """Add text to the open part without events: its deltas have been delivered already."""
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
        """Write answer text to block `key`. Text parts of one `item` make one message.

        `logprobs` and `annotations` are appended; the other arguments are as for `thinking`.
        """
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
        """Write text of the model's refusal to block `key`."""
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
        """Write a function call, or more of its arguments.

        The call opens when `name` is passed. `args` is JSON text, or the whole object.
        """
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
        """Write a call that the provider runs itself. `status` is its progress in the provider's own word."""
        part = BuiltinToolCallPart(name, "", call_id, id=id, provider_name=self.origin.provider)
        delta = None
        if status is not None or details:
            text = args if isinstance(args, str) else json_text(args)
            delta = BuiltinToolCallPartDelta(text, status, provider_details=details or None)
        self._stream_delta(key, item, part, args, delta, None, None, explicit_end)

    def close(self, key: Key, *, at_once: bool = False, complete: bool = True) -> None:
        """Mark block or item `key` as over, as the wire reports. A key that was never opened is ignored.

        Args:
            key: The block or the item.
            at_once: Write the part's end now, not with the next event, because the wire has no more data for the part.
            complete: Whether a part that ends now is complete.
        """
        self._blank_texts.pop(key, None)
        if key in self._held_by_key:
            self._hold(key, key, partial(self.close, key, at_once=at_once, complete=complete), sticky=True)
            return
        if self._open_part is not None and self._open_part.key == key:
            self._open_part.explicit_end = False
            if at_once:
                self._close_part(complete=complete)
        if self._item is not None and self._item.key == key:
            self._item.explicit_end = False
        if self._held_blocks and not self._is_replaying and self._can_close_all():
            self._release_held()

    def close_open_blocks(self) -> None:
        """Close everything that is open as complete."""
        if self._accepts_content:
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
        """Open item `key` if it is not open, and record the data for its end event.

        Reasoning without text is written this way, for example an encrypted blob. An item of another kind that gets no
        part is incomplete. With `explicit_end`, the wire ends the item with `close`, and other items are held back
        until then.
        """
        if not self._accepts_content:
            return
        item = self._item
        if item is None or item.key != key:
            deferred_call = partial(
                self.item, key, kind, id=id, signature=signature, native=native, explicit_end=explicit_end
            )
            if not self._close_or_hold(key, key, deferred_call, sticky=True):
                return
            if self._item_index >= self.limits.items:
                self.cut("turn_items")
                return
            item = self._open_item(key, kind, id, explicit_end)
        if signature:
            item.signature = signature
        if native is not None:
            item.native = native

    def whole_part(self, part: WholePart, *, item: Key = None) -> None:
        """Write a part that arrives in one piece. Consecutive parts with the same `item` key share an item."""
        if not self._accepts_content:
            return
        key = item if item is not None else ("whole", self._part_index, len(self._held_blocks or ()))
        kind = ITEM_OF[type(part)]
        if not self._close_or_hold(key, key, partial(self.whole_part, part, item=key), kind):
            return
        if self._has_max_items:
            self.cut("turn_items")
            return
        if self._item is None:
            self._open_item(key, kind, None if isinstance(part, SealedPart) else part.id)
        self._item_part_count += 1
        if isinstance(part, OpaquePart | SealedPart) or has_opaque_data(part):
            self._mark_opaque()
        self.events += part_events(self._part_index, part, self._last_part_kind)
        self._last_part_kind = part.part_kind
        self._part_index += 1

    # --- internals -----------------------------------------------------------------------------------------

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
        """Write a delta of block `key`. Open the block as `part`, or hold the whole call back.

        Args:
            key: The block.
            item: The item's key; None for an item of its own.
            part: The empty part to open; None for a call for which nothing is held back.
            text: The text, or a call's arguments as text or object.
            delta: The delta, where it has more than text.
            signature: Written in a delta of its own, with `details`.
            details: Provider details.
            explicit_end: Whether the wire ends the block itself.
            opens_call: Whether this may open a call. Otherwise it is held back together with the data that opens it.
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
                if isinstance(text, str) and not self._is_replaying:
                    self._held_characters += len(text)
                return
        exceeded: TurnLimit | None = None
        if not isinstance(text, str):
            open_.args_object = None if open_.text.length else text
            text = json_text(text)
        elif len(text) > _LONG_TEXT and (excess := self._excess_of(open_, text)) is not None:
            length, exceeded = excess
            text = text[:length]
        elif text:
            open_.args_object = None  # text after an object: the arguments are text then
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
        if exceeded is not None:
            self.cut(exceeded)

    def _excess_of(self, open_: _OpenPart, text: str) -> tuple[int, TurnLimit] | None:
        """Return how much of a text fits into the limits, and the limit that the rest exceeds; None if all fits."""
        length = open_.text.length
        room = self.limits.characters - self._closed_characters - length
        argument_room = self.limits.argument_characters - length if open_.kind is ToolCallPart else room
        if len(text) <= min(room, argument_room):
            return None
        if argument_room < room:
            return max(0, argument_room), "tool_argument_characters"
        return max(0, room), "turn_characters"

    def _write_delta(self, open_: _OpenPart, delta: PartDelta) -> None:
        """Write a delta that has more than text."""
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
        """Open `part` after closing what can be closed. None if it is held back, or the turn is over."""
        if not self._accepts_content:
            return None
        item_key = key if item is None else item
        kind = ITEM_OF[type(part)]
        if not self._close_or_hold(
            key, item_key, deferred_call, kind, sticky=explicit_end or isinstance(part, ToolCallPart)
        ):
            return None
        if self._has_max_items:
            self.cut("turn_items")
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
        """Close the open part, and the open item if another one begins; or hold `deferred_call` back.

        The open block may have to stay open (see the rules above), and nothing overtakes a block that is held back.

        Args:
            key: The block to write.
            item_key: The block's item.
            deferred_call: Repeated when the block can be written.
            kind: The item's kind; None for any.
            sticky: Whether the key always names one block, so that all of it is held back together.

        Returns:
            Whether the block can be written now.
        """
        if self._held_blocks and not self._is_replaying and self._can_close_all():
            # The open block has become complete: blocks that are held back come first, then this one.
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

    @property
    def _has_max_items(self) -> bool:
        return self._part_index >= self.limits.items or (self._item is None and self._item_index >= self.limits.items)

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
        # An item's key is registered only if the item itself is held back; several blocks may share an open item.
        block.keys.add(key)
        self._held_by_key[key] = block

    def _release_held(self, *, complete: bool = True) -> None:
        """Close what is open, then write the held blocks, as long as each can be closed for the next."""
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
        if not self._held_blocks:
            self._held_characters = 0

    def _replay(self, calls: list[Callable[[], None]]) -> list[Callable[[], None]]:
        """Repeat the calls that were held back. Return those that must stay held back."""
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
        if open_.signature_pieces:
            self._write_delta(
                open_,
                ThinkingPartDelta(signature_delta="".join(open_.signature_pieces), provider_name=self.origin.provider),
            )
        # A call with complete arguments is complete, however the turn ended.
        complete = complete or (open_.kind is ToolCallPart and open_.is_complete_json())
        self._item_is_cut_off = self._item_is_cut_off or not complete
        part = open_.result(complete)
        self._closed_characters += open_.text.length
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
        """Close everything. Held blocks are written now, so more than one block can be incomplete."""
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
        """Store arguments for a call that is already complete or was never named. They belong to no call."""
        if isinstance(args, dict) or args.strip():
            late = self.provider_details.setdefault("late_arguments", [])
            late.append({"tool_call_id": self._call_ids.get(key), "arguments": args})


def part_events(index: int, part: ModelResponsePart, last_kind: str | None) -> list[ModelEvent]:
    """Return the events of a part that is already complete.

    Args:
        index: The part's index in the turn.
        part: The part.
        last_kind: The kind of the part before it in the turn.
    """
    start, rest = split_part(part)
    out: list[ModelEvent] = [PartStartEvent(index, start, last_kind)]
    if rest is not None:
        out.append(PartDeltaEvent(index, rest))
    out.append(PartEndEvent(index, part))
    return out


def response_events(response: ModelResponse) -> list[ModelEvent]:
    """Return the events of a complete response. Folded, they give the same response, if `fold` made it."""
    origin = response.origin or Origin("unknown", "unknown", response.model_name or "unknown")
    out: list[ModelEvent] = [ResponseStartEvent(origin, response.provider_response_id, response.model_name)]
    index, last_kind = 0, None
    for item_index, parts in enumerate(group_into_items(response.parts)):
        first = parts[0]
        out.append(ItemStartEvent(item_index, ITEM_OF[type(first)], first.item_id, getattr(first, "id", None)))
        for part in parts:
            # A thinking part without content and opaque data (it may be on the item) has no part events.
            if not isinstance(part, ThinkingPart) or part.content or has_opaque_data(part):
                out += part_events(index, part, last_kind)
                index, last_kind = index + 1, part.part_kind
        opaque = any(has_opaque_data(part) or isinstance(part, OpaquePart) for part in parts)
        out.append(
            ItemEndEvent(
                item_index, "completed" if are_complete(parts) else "incomplete", origin=origin if opaque else None
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


def group_into_items(parts: list[ModelResponsePart]) -> list[list[ModelResponsePart]]:
    """Group parts into items: neighbours with the same `item_id` and kind of item. A part without an id is alone."""
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
