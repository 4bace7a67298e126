"""Bytes of a Responses answer to events, from a stream or a whole body: the items of one answer, as their events come.

* An item is found by its `output_index`, never by its id: some servers give every event another one. Its parts are
  found by `summary_index` or `content_index`.
* What is said twice is told once. The text of a part comes in deltas, and then whole with the part's end, with the
  item's end, and with the response's end; whichever comes later only tells what was missing. So a server may leave
  out any of them, and a whole body is an answer in which everything came last.
* An item's encrypted content is read from its end alone: what stands at its beginning may not be all of it.
* Items that interleave are held back until the earlier one is over. Where a server says so only at the end of
  everything (`Profile.item_end`), reasoning ends with the next item.
* An error ends the answer once, in however many forms it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ErrorInfo
from ...parts import CompactionPart, FinishReason, OpaquePart, Origin
from ..answer import AnswerDecoder, EventFrames, Reader
from ..faults import TURN_FAILED, fault_of_value
from ..fitting import loose_json
from ..frame_template import NUMBER, WORD, SkipRule, unread
from ..functions import arguments_text
from ..profile import Profile
from . import builtin
from .event import Event, read_event, read_head, read_response, read_usage
from .item import (
    KIND_OF_PART,
    ROLE_OF_TYPE,
    Item,
    Kind,
    Part,
    Role,
    arguments_of,
    escaped,
    id_of,
    more_of,
    objects,
    text_of,
)

INCOMPLETE: dict[Any, FinishReason] = {"content_filter": "content_filter"}
"""Why an answer is incomplete. Everything else is a limit of some sort: what came last is not all of it."""

# What of the response itself is worth telling.
_DETAILS = ("service_tier", "input_transformations")


class Items(Reader):
    """The state of one answer, item by item; `emit` holds what it amounts to."""

    wire = "Responses"
    code = "not_responses"
    unread = (unread(b"sequence_number", NUMBER), unread(b"obfuscation", WORD))

    def __init__(self, row: Profile, origin: Origin) -> None:
        super().__init__(origin)
        self._row = row
        self._told = row.item_end == "told"
        self._items: dict[int, Item] = {}
        self._all: list[Item] = []
        self._last = 0
        self._calls = False

    def frame(self, data: bytes, name: str) -> None:
        event = read_event(data)
        if event is not None and (event.type or name):
            part = self.event(event, name)
            if part is not None and type(event.delta) is str:
                self.skip_rule = SkipRule(on_skip=part.skipped)
        elif data.strip():
            self._body(data, name)

    def settle(self) -> None:
        """The stream said `[DONE]`, perhaps without a word of how it went."""
        if not self.heard:
            self.fail(ErrorInfo("model_error", "the upstream's answer ended without any event", code="empty_stream"))
        elif not self.finished:
            self._finish("completed", {})

    def event(self, event: Event, name: str = "") -> Part | None:
        """One event; `name` is what the stream calls it, where it does not say so itself.

        If it brought more of a part's text, and the next one like it will do the same: that part.
        """
        type_ = event.type or name
        kind = _DELTAS.get(type_)
        if kind is not None:
            item = self._items.get(event.output_index)  # type: ignore[arg-type]
            index = event.summary_index if kind == "summary" else event.content_index
            known = item.parts.get((kind, index)) if item is not None else None
            if known is None:
                self.heard = True
            part = known or self._part_at(event, kind)
            text = event.delta if type(event.delta) is str else text_of(event.delta)
            if text:
                self._write(part, text, event.logprobs)
            return known
        step = _STEPS.get(type_)
        if step is not None:
            self.heard = True
            step(self, event)
        elif event.error:
            self._error(event)
        else:
            self._progress(event, type_)
        return None

    def flush(self) -> None:
        """Tell what was held back because it was not whole."""
        for item in self._all:
            self._flush(item)

    def _flush(self, item: Item) -> None:
        if item.over:
            return
        if item.role == "tool":
            self._cut_tool(item)
        elif item.role == "call":
            if not item.told:
                self._open_call(item, "", None)
            if not item.length:
                self._more_arguments(item, arguments_text(arguments_of(item.native)))

    # --- the response ----------------------------------------------------------------------------------------

    def _body(self, data: bytes, name: str) -> None:
        """What is no event: the whole response, an error in its place, or nothing of this wire."""
        try:
            value = loose_json(data)
        except ValueError:
            value = None
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, dict) and isinstance(value.get("output"), list):
            self._response(value, "completed" if value.get("object") == "response.compaction" else None)
        elif isinstance(value, dict) and any(value.get(field) for field in ("error", "errors", "message", "detail")):
            self.fail(fault_of_value(value))
        elif name == "error":
            self.fail(fault_of_value(data.decode("utf-8", "replace")))
        elif not self.heard or value is None:
            self.refuse(data)

    def _response(self, response: dict[str, Any], status: str | None) -> None:
        """The whole response; `status` is what its event says that it must be."""
        self.heard = True
        emit = self.emit
        id, model = response.get("id"), response.get("model")
        emit.start(
            id if isinstance(id, str) and emit.provider_response_id is None else None,
            model if isinstance(model, str) else None,
        )
        output = response.get("output")
        if isinstance(output, list):
            self._output([native for native in output if isinstance(native, dict)])
        usage = response.get("usage")
        if isinstance(usage, dict):
            emit.usage = read_usage(usage, self._row.reasoning_tokens)
        emit.provider_details = {name: response[name] for name in _DETAILS if response.get(name)}
        said = response.get("status")
        self._finish(said if said in _ENDS else status or str(said), response)

    def _output(self, output: list[dict[str, Any]]) -> None:
        """The items once more, all together: what of them did not come before."""
        missing = len(output) - len(self._all)
        ids = {item.id for item in self._all} - {None}
        for index, native in enumerate(output):
            item = self._items.get(index)
            if item is None:
                if missing > 0 and (not isinstance(native.get("id"), str) or native["id"] not in ids):
                    missing -= 1
                    self._end_item(self._begin(index, native), native)
            elif not item.over:
                self._end_item(item, native)
            elif item.role == "reasoning" and not item.signed and native.get("type") == "reasoning":
                self._sign(item, native, {})

    def _finish(self, status: str, response: dict[str, Any]) -> None:
        self.finished = self.done = True
        self.flush()
        emit = self.emit
        if status == "completed":
            for item in self._all:
                self._close(item)
            emit.finish("tool_call" if self._calls else "stop", status)
        elif status == "incomplete":
            details = response.get("incomplete_details")
            reason = details.get("reason") if isinstance(details, dict) else None
            emit.finish(INCOMPLETE.get(reason, "length"), reason if isinstance(reason, str) else status)
        else:
            emit.finish("error", status)
            error = response.get("error")
            emit.fail(fault_of_value({"error": error}) if error else _gave_up(status))

    def _last_event(self, event: Event, status: str) -> None:
        self._response(read_response(event.response), status)

    def _head(self, event: Event) -> None:
        head = read_head(event.response)
        # Some servers give every event another id: the first is as good as any.
        self.emit.start(head.id if self.emit.provider_response_id is None else None, head.model)

    def _error(self, event: Event) -> None:
        """An error in the stream, in either of its shapes. What the server says after it is not a second one."""
        flat = {name: getattr(event, name) for name in ("code", "message", "param")}
        self.fail(fault_of_value({"error": event.error} if event.error else flat))

    # --- items -----------------------------------------------------------------------------------------------

    def _item_added(self, event: Event) -> None:
        native = event.item or {}
        index = event.output_index if event.output_index is not None else len(self._all)
        before = self._items.get(index)
        if before is not None and not before.announced and not before.over:
            self._announce(before, native)
            return
        if before is not None:
            # This server calls every item the same.
            self._flush(before)
            self._close(before)
        self._begin(index, native)

    def _item_done(self, event: Event) -> None:
        native = event.item or {}
        index = event.output_index if event.output_index is not None else self._last
        item = self._items.get(index)
        if item is None:
            item = self._begin(index, native)
        if not item.over:
            self._end_item(item, native)

    def _guess(self, event: Event, type_: str) -> Item:
        """An item that was not announced. What its events call it is a name as good as any."""
        index = event.output_index if event.output_index is not None else self._last
        return self._begin(index, {}, type_, id_of({"id": event.item_id}))

    def _begin(self, index: int, native: dict[str, Any], type_: str = "message", id: str | None = None) -> Item:
        said = native.get("type")
        item = Item(len(self._all), said if isinstance(said, str) else type_, "other")
        item.role = self._role_of(item.type)
        item.id = id
        self._all.append(item)
        self._items[index] = item
        self._last = index
        if native:
            self._announce(item, native)
        if item.role == "reasoning":
            self.emit.item(item.key, "reasoning", id=item.id, ends=self._told)
        elif item.role == "tool":
            self.emit.item(item.key, "builtin_tool", id=item.id, ends=True)
            self._tell_tool(item, native)
        return item

    def _role_of(self, type_: str) -> Role:
        return "tool" if type_ in self._row.server_tools else ROLE_OF_TYPE.get(type_, "other")

    def _announce(self, item: Item, native: dict[str, Any]) -> None:
        item.announced = True
        item.native = native
        item.id = item.id or id_of(native)
        item.details = more_of(native, item.role)
        if item.role == "call" and text_of(native.get("name")):
            self._open_call(item, text_of(native.get("name")), native)

    def _end_item(self, item: Item, native: dict[str, Any]) -> None:
        """The item, whole."""
        said = native.get("type")
        if isinstance(said, str) and item.role in ("message", "call", "other") and not (item.parts or item.told):
            # It was only guessed, and nothing of it was told.
            item.type, item.role = said, self._role_of(said)
        item.id = item.id or id_of(native)
        _WHOLE[item.role](self, item, native)
        self._close(item)

    def _close(self, item: Item) -> None:
        if item.over:
            return
        item.over = True
        for part in item.parts.values():
            part.over = True
            self.emit.close(part.key)
        if item.role == "tool":
            self.emit.close((item.key, "call"))
        elif item.told and item.type == "custom_tool_call":
            self.emit.tool_call(item.key, '"}')
        self.emit.close(item.key)

    # --- texts -----------------------------------------------------------------------------------------------

    def _part_at(self, event: Event, kind: Kind, *, announced: bool = False) -> Part:
        """The part that an event is about, or a new one."""
        index = event.output_index if event.output_index is not None else self._last
        item = self._items.get(index)
        if item is None:
            item = self._guess(event, "reasoning" if kind in ("raw", "summary") else "message")
        place = event.summary_index if kind == "summary" else event.content_index
        return self._part(item, kind, place, announced=announced)

    def _part(self, item: Item, kind: Kind, place: int | None, *, announced: bool = True) -> Part:
        asked = (kind, place)
        # Answer text in a reasoning item is reasoning, whatever its events are called.
        real: Kind = "raw" if kind == "text" and item.role == "reasoning" else kind
        part, last = item.parts.get((real, place or 0)), item.part
        if part is None and not announced and last is not None and last.kind == real:
            # Some servers count every delta as a part of its own, without having announced any.
            part = None if last.announced or last.over else last
        if part is None:
            part = item.part = Part(item, real)
        item.parts[asked] = item.parts[real, place or 0] = part
        part.announced = part.announced or announced
        return part

    def _write(self, part: Part, text: str, logprobs: Any = None) -> None:
        item, kind = part.item, part.kind
        if kind == "text":
            self.emit.text(
                part.key,
                text,
                item=item.key,
                id=item.id,
                details=item.details if not part.length else None,
                logprobs=objects(logprobs) if logprobs else None,
                ends=not part.over,
            )
        elif kind == "refusal":
            self.emit.refusal(part.key, text, item=item.key, ends=not part.over)
        else:
            self.emit.thinking(part.key, text, item=item.key, form=kind, id=item.id, ends=self._told and not part.over)
        part.length += len(text)

    def _rest(self, part: Part, text: str, logprobs: Any = None) -> None:
        """All of the part's text: what of it was not told yet."""
        if len(text) > part.length:
            self._write(part, text[part.length :], logprobs if not part.length else None)

    def _annotate(self, part: Part, annotations: list[dict[str, Any]]) -> None:
        if annotations and part.kind == "text":
            item = part.item
            first = not part.length and not part.annotations
            self.emit.text(
                part.key,
                item=item.key,
                id=item.id,
                details=item.details if first else None,
                annotations=annotations,
                ends=not part.over,
            )
            part.annotations += len(annotations)

    def _over(self, part: Part, *, at_once: bool = False) -> None:
        part.over = True
        self.emit.close(part.key, at_once=at_once)

    def _part_added(self, event: Event) -> None:
        self._kind_of(event, announced=True)

    def _part_done(self, event: Event) -> None:
        part = self._kind_of(event)
        if part is not None:
            self._whole_part(part, event.part or {})
            # Whoever watches it think sees that this thought is over, however long the next one takes to come.
            self._over(part, at_once=part.kind in ("summary", "raw"))

    def _kind_of(self, event: Event, *, announced: bool = False) -> Part | None:
        """The part that an event with a `part` is about; None if it is of no kind that streams."""
        kind = KIND_OF_PART.get(text_of((event.part or {}).get("type")))
        return self._part_at(event, kind, announced=announced) if kind is not None else None

    def _whole_part(self, part: Part, native: dict[str, Any]) -> None:
        self._rest(part, text_of(native.get("refusal" if part.kind == "refusal" else "text")), native.get("logprobs"))
        self._annotate(part, objects(native.get("annotations"))[part.annotations :])

    def _text_done(self, event: Event, kind: Kind) -> None:
        part = self._part_at(event, kind)
        self._rest(part, text_of(event.refusal if kind == "refusal" else event.text), event.logprobs)
        self._over(part)

    def _annotation(self, event: Event) -> None:
        self._annotate(self._part_at(event, "text"), objects([event.annotation]))

    # --- whole items -------------------------------------------------------------------------------------------

    def _reasoning(self, item: Item, native: dict[str, Any]) -> None:
        texts: list[tuple[Kind, int, str]] = [
            (kind, place, text_of(part.get("text")))
            for name, kind in _TEXTS
            for place, part in enumerate(objects(native.get(name)))
        ]
        for kind, place, text in texts:
            other = item.parts.get(("raw" if kind == "summary" else "summary", place))
            if (kind, place) not in item.parts and other is not None and other.length == len(text):
                continue  # streamed under the other name
            part = self._part(item, kind, place)
            self._rest(part, text)
            self._over(part)
        more = more_of(native, "reasoning")
        told = [(part.kind, part.length) for part in dict.fromkeys(item.parts.values()) if part.length]
        if texts and sorted(told) != sorted((kind, len(text)) for kind, _, text in texts if text):
            # What was streamed is not what the item says it holds: it goes back as it says.
            more |= {name: native[name] for name, _ in _TEXTS if name in native}
        self._sign(item, native, more)

    def _sign(self, item: Item, native: dict[str, Any], more: dict[str, Any]) -> None:
        """What of a reasoning item is known only at its end."""
        sealed = native.get("encrypted_content")
        signature = sealed if isinstance(sealed, str) and sealed else None
        if signature or more:
            item.signed = True
            self.emit.item(
                item.key,
                "reasoning",
                id=item.id,
                signature=signature,
                native=more or None,
                ends=self._told and not item.over,
            )

    def _message(self, item: Item, native: dict[str, Any]) -> None:
        if native.get("role") not in (None, "assistant"):
            self._opaque(item, native)
            return
        late = {name: value for name, value in more_of(native, "message").items() if name not in item.details}
        item.details = {**item.details, **late}
        content = native.get("content")
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else objects(content)
        if late and item.part is not None and self.emit.is_open(item.part.key):
            self.emit.text(item.part.key, details=late)
        for place, entry in enumerate(parts):
            kind = KIND_OF_PART.get(text_of(entry.get("type")))
            if kind is None:
                # Kept in a message of its own, as which it can go back.
                alone = {**native, "content": [entry]}
                self._keep(text_of(entry.get("type")) or "content", alone, item.id)
            else:
                part = self._part(item, kind, place)
                self._whole_part(part, entry)
                self._over(part)

    def _call(self, item: Item, native: dict[str, Any]) -> None:
        name = text_of(native.get("name"))
        if not item.told:
            item.details = item.details or more_of(native, "call")
            self._open_call(item, name, native)
        arguments = arguments_text(arguments_of(native) or arguments_of(item.native))
        self._more_arguments(item, arguments[item.length :])

    def _open_call(self, item: Item, name: str, native: dict[str, Any] | None) -> None:
        item.told = self._calls = True
        args, item.pieces = "".join(item.pieces), []
        item.length = len(args)
        details = item.details
        if item.type == "custom_tool_call":
            # Its input is any text; here it is the one argument of a call like others.
            args, details = '{"input":"' + escaped(args), {"type": item.type, **details}
        call_id = (native or item.native).get("call_id")
        self.emit.tool_call(
            item.key,
            args,
            name=name,
            call_id=call_id if isinstance(call_id, str) else None,
            id=item.id,
            details=details or None,
            ends=True,
        )

    def _more_arguments(self, item: Item, text: str) -> None:
        if not text:
            return
        if item.told:
            item.length += len(text)
            self.emit.tool_call(item.key, escaped(text) if item.type == "custom_tool_call" else text)
        else:
            item.pieces.append(text)

    def _arguments_delta(self, event: Event) -> None:
        text = event.delta if type(event.delta) is str else arguments_text(event.delta)
        item = self._items.get(event.output_index if event.output_index is not None else self._last)
        if item is None:
            item = self._guess(event, "function_call")
        self._more_arguments(item, text)

    def _arguments_done(self, event: Event) -> None:
        item = self._items.get(event.output_index if event.output_index is not None else self._last)
        if item is not None and item.role == "call":
            if not item.told and event.name:
                self._open_call(item, event.name, None)
            arguments = arguments_text(event.arguments if event.arguments is not None else event.input)
            if item.told:
                self._more_arguments(item, arguments[item.length :])
            elif not item.pieces:
                self._more_arguments(item, arguments)

    def _tell_tool(self, item: Item, native: dict[str, Any], args: Any = "", **more: Any) -> None:
        self.emit.builtin_call(
            (item.key, "call"),
            args if isinstance(args, str | dict) else "",
            name=builtin.TOOLS.get(item.type, builtin.CUSTOM).name(native),
            call_id=item.id or "",
            item=item.key,
            id=item.id,
            ends=True,
            **more,
        )

    def _tool(self, item: Item, native: dict[str, Any]) -> None:
        provider, tool = self.emit.origin.provider, builtin.TOOLS.get(item.type, builtin.CUSTOM)
        self._tell_tool(item, native, tool.args(native), details={"native": builtin.without_pictures(native)})
        self.emit.close((item.key, "call"))
        self.emit.whole(builtin.return_of(tool, native, provider), item=item.key)
        self._close(item)
        for file in builtin.files_of(native, provider):
            self.emit.whole(file)

    def _cut_tool(self, item: Item) -> None:
        """A tool of which only the beginning came: what is known of what it was asked."""
        tool = builtin.TOOLS.get(item.type, builtin.CUSTOM)
        if tool.streams and item.pieces:
            self._tell_tool(item, item.native, tool.args(item.native | {tool.streams: "".join(item.pieces)}))
            item.pieces = []

    def _progress(self, event: Event, type_: str) -> None:
        """How far a provider's own tool is, in its own word."""
        item = self._items.get(event.output_index if event.output_index is not None else self._last)
        if item is not None and item.role == "tool" and not item.over:
            prefix, _, word = type_.rpartition(".")
            if prefix == f"response.{item.type}" and word in ("in_progress", "searching", "interpreting", "generating"):
                self._tell_tool(item, item.native, status=word)

    def _opaque(self, item: Item, native: dict[str, Any]) -> None:
        sealed = native.get("encrypted_content")
        if item.type in ("compaction", "compaction_summary") and isinstance(sealed, str):
            more = {name: value for name, value in native.items() if name not in ("id", "encrypted_content")}
            self.emit.whole(
                CompactionPart(
                    signature=sealed, id=item.id, provider_name=self.emit.origin.provider, provider_details=more
                )
            )
        elif native:
            self._keep(item.type, native, item.id)

    def _keep(self, type_: str, native: dict[str, Any], id: str | None) -> None:
        self.emit.whole(OpaquePart(type_, native, id=id, provider_name=self.emit.origin.provider))


def _with(step: Callable[[Items, Event, Any], None], argument: str) -> Callable[[Items, Event], None]:
    return lambda items, event: step(items, event, argument)


_DELTAS: dict[str, Kind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "raw",
    "response.reasoning.delta": "raw",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_summary.delta": "summary",
}

_STEPS: dict[str, Callable[[Items, Event], None]] = {
    "response.created": Items._head,
    "response.queued": Items._head,
    "response.in_progress": Items._head,
    "response.completed": _with(Items._last_event, "completed"),
    "response.done": _with(Items._last_event, "completed"),
    "response.incomplete": _with(Items._last_event, "incomplete"),
    "response.failed": _with(Items._last_event, "failed"),
    "response.cancelled": _with(Items._last_event, "cancelled"),
    "error": Items._error,
    "response.error": Items._error,
    "response.output_item.added": Items._item_added,
    "response.output_item.done": Items._item_done,
    "response.content_part.added": Items._part_added,
    "response.content_part.done": Items._part_done,
    "response.reasoning_part.added": Items._part_added,
    "response.reasoning_part.done": Items._part_done,
    "response.reasoning_summary_part.added": Items._part_added,
    "response.reasoning_summary_part.done": Items._part_done,
    **{name.removesuffix("delta") + "done": _with(Items._text_done, kind) for name, kind in _DELTAS.items()},
    "response.output_text.annotation.added": Items._annotation,
    "response.function_call_arguments.delta": Items._arguments_delta,
    "response.function_call_arguments.done": Items._arguments_done,
    "response.custom_tool_call_input.delta": Items._arguments_delta,
    "response.custom_tool_call_input.done": Items._arguments_done,
    "response.code_interpreter_call_code.delta": Items._arguments_delta,
    "response.mcp_call_arguments.delta": Items._arguments_delta,
}
"""What each event does. Others only say how far a tool has come, or are not known: they are nothing."""

_ENDS = ("completed", "incomplete", "failed", "cancelled")

_TEXTS: tuple[tuple[str, Kind], ...] = (("summary", "summary"), ("content", "raw"))

_WHOLE: dict[Role, Callable[[Items, Item, dict[str, Any]], None]] = {
    "reasoning": Items._reasoning,
    "message": Items._message,
    "call": Items._call,
    "tool": Items._tool,
    "other": Items._opaque,
}


def _gave_up(status: str) -> ErrorInfo:
    if status == "cancelled":
        return ErrorInfo("unavailable", "the upstream cancelled the response", code="cancelled")
    if status in ("queued", "in_progress"):
        return ErrorInfo(
            "model_error",
            f"the upstream answered with a response that is still {status}; it must not be asked to work in the "
            "background",
            code="response_not_finished",
        )
    return ErrorInfo("model_error", TURN_FAILED, code="failed", said=status)


def decoder(row: Profile, origin: Origin, content_type: str = "text/event-stream") -> AnswerDecoder:
    """The decoder for one answer. What the answer is shows in its first byte; the header is sometimes wrong."""
    return AnswerDecoder(Items(row, origin), EventFrames())
