"""Decoder of Responses responses, from a stream or a whole body, item by item.

* An item is found by its `output_index`, never by its id, because some servers give every event another id. Its parts
  are found by `summary_index` or `content_index`.
* Repeated content is emitted once. The text of a part arrives in deltas, and then whole with the part's end, with the
  item's end, and with the response's end. Each later copy adds only what was missing. So a server may leave out any of
  them, and a whole body is a response in which everything came last.
* An item's encrypted content is read from its end only, because at its beginning it may be incomplete.
* Items that interleave are held back until the earlier one is over. If a server reports that only at the end of the
  response (`Profile.item_end`), reasoning ends with the next item.
* An error ends the response once, in however many forms it is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ErrorInfo
from ...parts import CompactionPart, FinishReason, Origin
from ..errors import TURN_FAILED, error_from_value
from ..frame_template import NUMBER, WORD, SkipRule, varying_value
from ..lenient_json import decode_lenient_json, dict_of, objects_in, text_of
from ..profile import Profile
from ..stream_decoder import FrameType, WireReader
from ..tool_schema import arguments_text
from . import builtin
from .item_state import (
    KIND_OF_PART,
    REQUIRED_REASONING,
    ROLE_OF_TYPE,
    Event,
    Item,
    ItemRole,
    Part,
    PartKind,
    arguments_of,
    as_text,
    extra_fields,
    json_escaped,
    read_event,
    read_response,
    read_response_head,
    read_usage,
)

INCOMPLETE_REASONS: dict[Any, FinishReason] = {"content_filter": "content_filter"}
"""The finish reason for each reason of an incomplete response. Any other reason is a limit: `length`."""

# The response's fields that become provider details.
_RESPONSE_DETAILS = ("service_tier", "input_transformations")


class ResponsesReader(WireReader):
    """The state of one response, item by item. `emit` has the events."""

    wire = "Responses"
    code = "not_responses"
    frame_type: FrameType = Event
    ignored_fields = ("sequence_number", "obfuscation", "annotation_index", "agent")
    varying_values = (varying_value(b"sequence_number", NUMBER), varying_value(b"obfuscation", WORD))

    def __init__(self, profile: Profile, origin: Origin) -> None:
        super().__init__(origin)
        self._profile = profile
        self._has_item_end = profile.item_end == "reported"
        self._items: dict[int, Item] = {}
        self._item_list: list[Item] = []
        self._last_index = 0
        self._has_calls = False

    def read_frame(self, data: bytes, name: str) -> None:
        event = read_event(data)
        if event is not None and (event.type or name):
            part = self.handle_event(event, name)
            if part is not None and type(event.delta) is str:
                self.skip_rule = SkipRule(on_skip=part.add_skipped)
        elif data.strip():
            self._read_body(data, name)

    def end_normally(self) -> None:
        """End a stream that sent `[DONE]`, possibly without a final event."""
        if not self.is_recognized:
            self.fail(ErrorInfo("model_error", "the provider's answer ended without any event", code="empty_stream"))
        elif not self.finished:
            self._finish_response("completed", {})

    def handle_event(self, event: Event, name: str = "") -> Part | None:
        """Process one event.

        Args:
            event: The event.
            name: The event's name in the stream, used if the event has no `type`.

        Returns:
            The part, if the event is more text of a known part and the next one like it will be the same.
        """
        type_ = event.type or name
        kind = _DELTAS.get(type_)
        if kind is not None:
            item = self._items.get(event.output_index)  # type: ignore[arg-type]
            index = event.summary_index if kind == "summary" else event.content_index
            known_part = item.parts.get((kind, index)) if item is not None else None
            if known_part is None:
                self.is_recognized = True
            part = known_part or self._part_of_delta(event, kind)
            text = event.delta if type(event.delta) is str else as_text(event.delta)
            if text:
                self._write_text(part, text, event.logprobs)
            return known_part
        handler = _HANDLERS.get(type_)
        if handler is not None:
            self.is_recognized = True
            handler(self, event)
        elif event.error:
            self._error(event)
        else:
            self._progress(event, type_)
        return None

    def flush(self) -> None:
        """Write what was held back because it was incomplete."""
        for item in self._item_list:
            self._flush_item(item)
        required = self._required_reasoning()
        if required:
            self.emit.provider_details[REQUIRED_REASONING] = required

    def _required_reasoning(self) -> dict[str, str]:
        """Return, for the id of each item, the id of the reasoning item before it.

        A reasoning item has one only if it follows another one directly.
        """
        required: dict[str, str] = {}
        reasoning_id: str | None = None
        follows_reasoning = False
        for item in self._item_list:
            is_reasoning = item.role == "reasoning"
            if item.is_empty:
                continue
            if item.id is not None and reasoning_id is not None and (follows_reasoning or not is_reasoning):
                required.setdefault(item.id, reasoning_id)
            if is_reasoning:
                reasoning_id = item.id
            follows_reasoning = is_reasoning
        return required

    def _flush_item(self, item: Item) -> None:
        if item.is_over:
            return
        if item.role == "tool":
            self._emit_partial_tool_call(item)
        elif item.role == "call":
            if not item.is_call_open:
                self._open_call(item, "", None)
            if not item.arguments_length:
                self._add_arguments(item, arguments_text(arguments_of(item.native)))

    # --- the response ----------------------------------------------------------------------------------------

    def _read_body(self, data: bytes, name: str) -> None:
        """Read a frame that is not an event: a whole response, an error, or data of no known form."""
        self.frame_type = None
        try:
            value = decode_lenient_json(data)
        except ValueError:
            value = None
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, dict) and isinstance(value.get("output"), list):
            self._read_response(value, "completed" if value.get("object") == "response.compaction" else None)
        elif isinstance(value, dict) and any(value.get(field) for field in ("error", "errors", "message", "detail")):
            self.fail(error_from_value(value))
        elif name == "error":
            self.fail(error_from_value(data.decode("utf-8", "replace")))
        elif not self.is_recognized or value is None:
            self.reject(data)

    def _read_response(self, response: dict[str, Any], status: str | None) -> None:
        """Read a whole response. `status` is the status that its event implies, used if it has none."""
        self.is_recognized = True
        emit = self.emit
        id, model = response.get("id"), response.get("model")
        emit.start(
            id if isinstance(id, str) and emit.provider_response_id is None else None,
            model if isinstance(model, str) else None,
        )
        output = response.get("output")
        if isinstance(output, list):
            self._read_output(objects_in(output))
        usage = response.get("usage")
        if isinstance(usage, dict):
            emit.usage = read_usage(usage, self._profile.reasoning_tokens)
        emit.provider_details |= {name: response[name] for name in _RESPONSE_DETAILS if response.get(name)}
        reported_status = response.get("status")
        self._finish_response(
            reported_status if reported_status in _END_STATUSES else status or str(reported_status), response
        )

    def _read_output(self, output: list[dict[str, Any]]) -> None:
        """Read the list of all items, and emit what did not come before."""
        missing = len(output) - len(self._item_list)
        ids = {item.id for item in self._item_list} - {None}
        for index, native in enumerate(output):
            item = self._items.get(index)
            if item is None:
                if missing > 0 and (not isinstance(native.get("id"), str) or native["id"] not in ids):
                    missing -= 1
                    self._end_item(self._begin_item(index, native), native)
            elif not item.is_over:
                self._end_item(item, native)
            elif item.role == "reasoning" and not item.has_signature and native.get("type") == "reasoning":
                self._add_signature(item, native, {})

    def _finish_response(self, status: str, response: dict[str, Any]) -> None:
        self.finished = self.done = True
        self.flush()
        emit = self.emit
        if status == "completed":
            for item in self._item_list:
                self._close_item(item)
            emit.finish("tool_call" if self._has_calls else "stop", status)
        elif status == "incomplete":
            reason = dict_of(response, "incomplete_details").get("reason")
            emit.finish(INCOMPLETE_REASONS.get(reason, "length"), reason if isinstance(reason, str) else status)
        else:
            emit.finish("error", status)
            error = response.get("error")
            emit.fail(error_from_value({"error": error}) if error else _error_of_status(status))

    def _response_ended(self, event: Event, status: str) -> None:
        self._read_response(read_response(event.response), status)

    def _response_started(self, event: Event) -> None:
        head = read_response_head(event.response)
        # Some servers give every event another id: the first one is used.
        self.emit.start(head.id if self.emit.provider_response_id is None else None, head.model)

    def _error(self, event: Event) -> None:
        """Read an error event, flat or nested. A later one is ignored."""
        flat = {name: getattr(event, name) for name in ("code", "message", "param")}
        self.fail(error_from_value({"error": event.error} if event.error else flat))

    # --- items -----------------------------------------------------------------------------------------------

    def _item_added(self, event: Event) -> None:
        native = event.item or {}
        index = event.output_index if event.output_index is not None else len(self._item_list)
        before = self._items.get(index)
        if before is not None and not before.is_announced and not before.is_over:
            self._announce_item(before, native)
            return
        if before is not None:
            # This server gives every item the same index.
            self._flush_item(before)
            self._close_item(before)
        self._begin_item(index, native)

    def _item_done(self, event: Event) -> None:
        native = event.item or {}
        index = self._index_of(event)
        item = self._items.get(index)
        if item is None:
            item = self._begin_item(index, native)
        if not item.is_over:
            self._end_item(item, native)

    def _index_of(self, event: Event) -> int:
        """Return the index of an event's item. Some servers leave it out; then it is the last item's."""
        return event.output_index if event.output_index is not None else self._last_index

    def _begin_unannounced(self, event: Event, type_: str) -> Item:
        """Begin an item that was not announced, with the id in its events."""
        return self._begin_item(self._index_of(event), {}, type_, text_of({"id": event.item_id}, "id"))

    def _begin_item(self, index: int, native: dict[str, Any], type_: str = "message", id: str | None = None) -> Item:
        native_type = native.get("type")
        type_ = native_type if isinstance(native_type, str) else type_
        item = Item(len(self._item_list), type_, self._role_of(type_))
        item.id = id
        self._item_list.append(item)
        self._items[index] = item
        self._last_index = index
        if native:
            self._announce_item(item, native)
        if item.role == "reasoning":
            self.emit.item(item.key, "reasoning", id=item.id, explicit_end=self._has_item_end)
        elif item.role == "tool":
            self.emit.item(item.key, "builtin_tool", id=item.id, explicit_end=True)
            self._emit_tool_call(item, native)
        return item

    def _role_of(self, type_: str) -> ItemRole:
        return "tool" if type_ in self._profile.server_tools else ROLE_OF_TYPE.get(type_, "other")

    def _announce_item(self, item: Item, native: dict[str, Any]) -> None:
        item.is_announced = True
        item.native = native
        item.id = item.id or text_of(native, "id")
        item.details = extra_fields(native, item.role)
        if item.role == "call" and as_text(native.get("name")):
            self._open_call(item, as_text(native.get("name")), native)

    def _end_item(self, item: Item, native: dict[str, Any]) -> None:
        """End an item with its complete data."""
        native_type = native.get("type")
        if (
            isinstance(native_type, str)
            and item.role in ("message", "call", "other")
            and not (item.parts or item.is_call_open)
        ):
            # Its type was a guess, and nothing of it was emitted.
            item.type, item.role = native_type, self._role_of(native_type)
        item.id = item.id or text_of(native, "id")
        _ITEM_END_HANDLERS[item.role](self, item, native)
        self._close_item(item, is_cut=native.get("status") == "incomplete")

    def _close_item(self, item: Item, *, is_cut: bool = False) -> None:
        if item.is_over:
            return
        item.is_over = True
        for part in item.parts.values():
            part.is_over = True
            self.emit.close(part.key)
        if item.role == "tool":
            self.emit.close((item.key, "call"))
        elif item.is_call_open and item.type == "custom_tool_call" and not is_cut:
            self.emit.tool_call(item.key, '"}')
        self.emit.close(item.key)

    # --- texts -----------------------------------------------------------------------------------------------

    def _part_of_delta(self, event: Event, kind: PartKind, *, announced: bool = False) -> Part:
        """Return the part that an event belongs to, or a new one."""
        item = self._items.get(self._index_of(event))
        if item is None:
            item = self._begin_unannounced(event, "reasoning" if kind in ("raw", "summary") else "message")
        part_index = event.summary_index if kind == "summary" else event.content_index
        return self._find_or_add_part(item, kind, part_index, announced=announced)

    def _find_or_add_part(self, item: Item, kind: PartKind, part_index: int | None, *, announced: bool = True) -> Part:
        event_key = (kind, part_index)
        # Answer text in a reasoning item is reasoning, whatever the events' types.
        part_kind: PartKind = "raw" if kind == "text" and item.role == "reasoning" else kind
        part, last = item.parts.get((part_kind, part_index or 0)), item.last_part
        if part is None and not announced and last is not None and last.kind == part_kind:
            # Some servers give every delta an index of its own, without announcing parts.
            part = None if last.is_announced or last.is_over else last
        if part is None:
            part = item.last_part = Part(item, part_kind)
        item.parts[event_key] = item.parts[part_kind, part_index or 0] = part
        part.is_announced = part.is_announced or announced
        return part

    def _write_text(self, part: Part, text: str, logprobs: Any = None) -> None:
        item, kind = part.item, part.kind
        if kind == "text":
            self.emit.text(
                part.key,
                text,
                item=item.key,
                id=item.id,
                details=item.details if not part.text_length else None,
                logprobs=objects_in(logprobs) if logprobs else None,
                explicit_end=not part.is_over,
            )
        elif kind == "refusal":
            self.emit.refusal(part.key, text, item=item.key, explicit_end=not part.is_over)
        else:
            self.emit.thinking(
                part.key,
                text,
                item=item.key,
                form=kind,
                id=item.id,
                explicit_end=self._has_item_end and not part.is_over,
            )
        part.text_length += len(text)

    def _write_rest(self, part: Part, text: str, logprobs: Any = None) -> None:
        """Write what is missing of a part's complete text."""
        if len(text) > part.text_length:
            self._write_text(part, text[part.text_length :], logprobs if not part.text_length else None)

    def _add_annotations(self, part: Part, annotations: list[dict[str, Any]]) -> None:
        if annotations and part.kind == "text":
            item = part.item
            first = not part.text_length and not part.annotation_count
            self.emit.text(
                part.key,
                item=item.key,
                id=item.id,
                details=item.details if first else None,
                annotations=annotations,
                explicit_end=not part.is_over,
            )
            part.annotation_count += len(annotations)

    def _end_part(self, part: Part, *, at_once: bool = False) -> None:
        part.is_over = True
        self.emit.close(part.key, at_once=at_once)

    def _part_added(self, event: Event) -> None:
        self._part_of_event(event, announced=True)

    def _part_done(self, event: Event) -> None:
        part = self._part_of_event(event)
        if part is not None:
            self._complete_part(part, event.part or {})
            # A client sees at once that this reasoning is over, even if the next part takes long to come.
            self._end_part(part, at_once=part.kind in ("summary", "raw"))

    def _part_of_event(self, event: Event, *, announced: bool = False) -> Part | None:
        """Return the part of an event that has a `part`; None if its kind does not stream."""
        kind = KIND_OF_PART.get(as_text((event.part or {}).get("type")))
        return self._part_of_delta(event, kind, announced=announced) if kind is not None else None

    def _complete_part(self, part: Part, native: dict[str, Any]) -> None:
        self._write_rest(
            part, as_text(native.get("refusal" if part.kind == "refusal" else "text")), native.get("logprobs")
        )
        self._add_annotations(part, objects_in(native.get("annotations"))[part.annotation_count :])

    def _text_done(self, event: Event, kind: PartKind) -> None:
        part = self._part_of_delta(event, kind)
        self._write_rest(part, as_text(event.refusal if kind == "refusal" else event.text), event.logprobs)
        self._end_part(part)

    def _annotation(self, event: Event) -> None:
        self._add_annotations(self._part_of_delta(event, "text"), objects_in([event.annotation]))

    # --- whole items -------------------------------------------------------------------------------------------

    def _end_reasoning(self, item: Item, native: dict[str, Any]) -> None:
        texts: list[tuple[PartKind, int, str]] = [
            (kind, part_index, as_text(part.get("text")))
            for name, kind in _REASONING_TEXT_FIELDS
            for part_index, part in enumerate(objects_in(native.get(name)))
        ]
        for kind, part_index, text in texts:
            other = item.parts.get(("raw" if kind == "summary" else "summary", part_index))
            if (kind, part_index) not in item.parts and other is not None and other.text_length == len(text):
                continue  # streamed as the other kind
            part = self._find_or_add_part(item, kind, part_index)
            self._write_rest(part, text)
            self._end_part(part)
        extra = extra_fields(native, "reasoning")
        streamed = [(part.kind, part.text_length) for part in dict.fromkeys(item.parts.values()) if part.text_length]
        if texts and sorted(streamed) != sorted((kind, len(text)) for kind, _, text in texts if text):
            # The streamed text differs from the item's: the item's own text is sent back.
            extra |= {name: native[name] for name, _ in _REASONING_TEXT_FIELDS if name in native}
        self._add_signature(item, native, extra)

    def _add_signature(self, item: Item, native: dict[str, Any], extra: dict[str, Any]) -> None:
        """Record the data of a reasoning item that is known only at its end."""
        encrypted = native.get("encrypted_content")
        signature = encrypted if isinstance(encrypted, str) and encrypted else None
        if signature or extra:
            item.has_signature = True
            self.emit.item(
                item.key,
                "reasoning",
                id=item.id,
                signature=signature,
                native=extra or None,
                explicit_end=self._has_item_end and not item.is_over,
            )

    def _end_message(self, item: Item, native: dict[str, Any]) -> None:
        if native.get("role") not in (None, "assistant"):
            item.has_opaque_content = True
            self._end_opaque(item, native)
            return
        late_details = {
            name: value for name, value in extra_fields(native, "message").items() if name not in item.details
        }
        item.details = {**item.details, **late_details}
        content = native.get("content")
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else objects_in(content)
        if late_details and item.last_part is not None and self.emit.is_open(item.last_part.key):
            self.emit.text(item.last_part.key, details=late_details)
        for part_index, entry in enumerate(parts):
            kind = KIND_OF_PART.get(as_text(entry.get("type")))
            if kind is None:
                # It is stored as a message of its own, in which it can be sent back.
                message = {**native, "content": [entry]}
                item.has_opaque_content = True
                self.emit_opaque(as_text(entry.get("type")) or "content", message, item.id)
            else:
                part = self._find_or_add_part(item, kind, part_index)
                self._complete_part(part, entry)
                self._end_part(part)

    def _end_call(self, item: Item, native: dict[str, Any]) -> None:
        name = as_text(native.get("name"))
        if not item.is_call_open:
            item.details = item.details or extra_fields(native, "call")
            self._open_call(item, name, native)
        arguments = arguments_text(arguments_of(native) or arguments_of(item.native))
        self._add_arguments(item, arguments[item.arguments_length :])

    def _open_call(self, item: Item, name: str, native: dict[str, Any] | None) -> None:
        item.is_call_open = self._has_calls = True
        args, item.pieces = "".join(item.pieces), []
        item.arguments_length = len(args)
        details = item.details
        if item.type == "custom_tool_call":
            # Its input is free text. Here it becomes the only argument of a function call.
            args, details = '{"input":"' + json_escaped(args), {"type": item.type, **details}
        call_id = (native or item.native).get("call_id")
        self.emit.tool_call(
            item.key,
            args,
            name=name,
            call_id=call_id if isinstance(call_id, str) else None,
            id=item.id,
            details=details or None,
            explicit_end=True,
        )

    def _add_arguments(self, item: Item, text: str) -> None:
        if not text:
            return
        if item.is_call_open:
            item.arguments_length += len(text)
            self.emit.tool_call(item.key, json_escaped(text) if item.type == "custom_tool_call" else text)
        else:
            item.pieces.append(text)

    def _arguments_delta(self, event: Event) -> None:
        text = event.delta if type(event.delta) is str else arguments_text(event.delta)
        item = self._items.get(self._index_of(event))
        if item is None:
            item = self._begin_unannounced(event, "function_call")
        self._add_arguments(item, text)

    def _arguments_done(self, event: Event) -> None:
        item = self._items.get(self._index_of(event))
        if item is not None and item.role == "call":
            if not item.is_call_open and event.name:
                self._open_call(item, event.name, None)
            arguments = arguments_text(event.arguments if event.arguments is not None else event.input)
            if item.is_call_open:
                self._add_arguments(item, arguments[item.arguments_length :])
            elif not item.pieces:
                self._add_arguments(item, arguments)

    def _emit_tool_call(self, item: Item, native: dict[str, Any], args: Any = "", **more: Any) -> None:
        self.emit.builtin_call(
            (item.key, "call"),
            args if isinstance(args, str | dict) else "",
            name=builtin.TOOLS.get(item.type, builtin.CUSTOM).name(native),
            call_id=item.id or "",
            item=item.key,
            id=item.id,
            explicit_end=True,
            **more,
        )

    def _end_tool(self, item: Item, native: dict[str, Any]) -> None:
        provider, tool = self.emit.origin.provider, builtin.TOOLS.get(item.type, builtin.CUSTOM)
        self._emit_tool_call(item, native, tool.args(native), details={"native": builtin.without_images(native)})
        self.emit.close((item.key, "call"))
        self.emit.whole_part(builtin.tool_return(tool, native, provider), item=item.key)
        self._close_item(item)
        for file in builtin.image_files(native, provider):
            self.emit.whole_part(file)

    def _emit_partial_tool_call(self, item: Item) -> None:
        """Emit the known arguments of a provider's tool that was cut off."""
        tool = builtin.TOOLS.get(item.type, builtin.CUSTOM)
        if tool.streamed_field and item.pieces:
            self._emit_tool_call(
                item, item.native, tool.args(item.native | {tool.streamed_field: "".join(item.pieces)})
            )
            item.pieces = []

    def _progress(self, event: Event, type_: str) -> None:
        """Emit the progress of a provider's own tool, in the provider's word."""
        item = self._items.get(self._index_of(event))
        if item is not None and item.role == "tool" and not item.is_over:
            prefix, _, word = type_.rpartition(".")
            if prefix == f"response.{item.type}" and word in ("in_progress", "searching", "interpreting", "generating"):
                self._emit_tool_call(item, item.native, status=word)

    def _end_opaque(self, item: Item, native: dict[str, Any]) -> None:
        encrypted = native.get("encrypted_content")
        if item.type in ("compaction", "compaction_summary") and isinstance(encrypted, str):
            details = {name: value for name, value in native.items() if name not in ("id", "encrypted_content")}
            self.emit.whole_part(
                CompactionPart(
                    signature=encrypted, id=item.id, provider_name=self.emit.origin.provider, provider_details=details
                )
            )
        elif native:
            self.emit_opaque(item.type, native, item.id)


def _with_argument(
    step: Callable[[ResponsesReader, Event, Any], None], argument: str
) -> Callable[[ResponsesReader, Event], None]:
    return lambda items, event: step(items, event, argument)


_DELTAS: dict[str, PartKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "raw",
    "response.reasoning.delta": "raw",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_summary.delta": "summary",
}

_HANDLERS: dict[str, Callable[[ResponsesReader, Event], None]] = {
    "response.created": ResponsesReader._response_started,
    "response.queued": ResponsesReader._response_started,
    "response.in_progress": ResponsesReader._response_started,
    "response.completed": _with_argument(ResponsesReader._response_ended, "completed"),
    "response.done": _with_argument(ResponsesReader._response_ended, "completed"),
    "response.incomplete": _with_argument(ResponsesReader._response_ended, "incomplete"),
    "response.failed": _with_argument(ResponsesReader._response_ended, "failed"),
    "response.cancelled": _with_argument(ResponsesReader._response_ended, "cancelled"),
    "error": ResponsesReader._error,
    "response.error": ResponsesReader._error,
    "response.output_item.added": ResponsesReader._item_added,
    "response.output_item.done": ResponsesReader._item_done,
    "response.content_part.added": ResponsesReader._part_added,
    "response.content_part.done": ResponsesReader._part_done,
    "response.reasoning_part.added": ResponsesReader._part_added,
    "response.reasoning_part.done": ResponsesReader._part_done,
    "response.reasoning_summary_part.added": ResponsesReader._part_added,
    "response.reasoning_summary_part.done": ResponsesReader._part_done,
    **{
        name.removesuffix("delta") + "done": _with_argument(ResponsesReader._text_done, kind)
        for name, kind in _DELTAS.items()
    },
    "response.output_text.annotation.added": ResponsesReader._annotation,
    "response.function_call_arguments.delta": ResponsesReader._arguments_delta,
    "response.function_call_arguments.done": ResponsesReader._arguments_done,
    "response.custom_tool_call_input.delta": ResponsesReader._arguments_delta,
    "response.custom_tool_call_input.done": ResponsesReader._arguments_done,
    "response.code_interpreter_call_code.delta": ResponsesReader._arguments_delta,
    "response.mcp_call_arguments.delta": ResponsesReader._arguments_delta,
}
"""The handler of each event type. Other types report the progress of a tool, or are unknown and ignored."""

_END_STATUSES = ("completed", "incomplete", "failed", "cancelled")

_REASONING_TEXT_FIELDS: tuple[tuple[str, PartKind], ...] = (("summary", "summary"), ("content", "raw"))

_ITEM_END_HANDLERS: dict[ItemRole, Callable[[ResponsesReader, Item, dict[str, Any]], None]] = {
    "reasoning": ResponsesReader._end_reasoning,
    "message": ResponsesReader._end_message,
    "call": ResponsesReader._end_call,
    "tool": ResponsesReader._end_tool,
    "other": ResponsesReader._end_opaque,
}


def _error_of_status(status: str) -> ErrorInfo:
    if status == "cancelled":
        return ErrorInfo("unavailable", "the provider cancelled the response", code="cancelled")
    if status in ("queued", "in_progress"):
        return ErrorInfo(
            "model_error",
            f"the provider answered with a response that is still {status}; it must not be asked to work in the "
            "background",
            code="response_not_finished",
        )
    return ErrorInfo("model_error", TURN_FAILED, code="failed", upstream_message=status)
