"""Verifies that a stream keeps the specification's rules, and names those that it violates.

framing      every event is a JSON object whose `type` its `event:` line repeats, and one that this dialect has; the
             stream ends with `data: [DONE]`, which comes once; a socket has neither
fields       an event has the fields that its type needs
sequence     `sequence_number` counts 0, 1, 2 … without a gap
life         `response.created` comes first and once, then `queued` or `in_progress`, and items only after that;
             exactly one terminal event, last, whose name is the response's status; an `error` is followed by
             `response.failed`
item         `output_item.added` before any other event of an item, `.done` after; one open at a time; `output_index`
             counts up from 0; no two items have the same id; an item is added empty, and is done with the content of
             its parts; sealed data comes when the item is done, in reasoning items only (a compaction is nothing else);
             a call of a custom tool that was cut off is not done, and is incomplete in the terminal event
part         a part is of its item's kind, is added empty, gets its deltas, its own `done` once, and then its
             `…_part.done`; indices count up in the item
text         the `done` text is the sum of the deltas, and no delta is empty
output       the terminal event's `output` is the items as they were done
incomplete   a response with an incomplete item is not completed (the item is the last one, or its neighbours were
             in progress at the same time)

A stream that was broken off and resumed is checked as the part before the cursor followed by the part after it.

The published schema defines the type of each field; these rules are those that no schema can express.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...framing import SSEDecoder
from .dialects import DIALECTS, OUTPUT_TEXT, REFUSAL, SUMMARY, Dialect
from .encode import Framing

_OPENING_EVENTS = ("response.created", "response.queued", "response.in_progress")
_TERMINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")
_STREAMED_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The calls whose input is streamed, which is treated as a part, and the field that holds it."""
_TEXT_FIELDS = {"refusal": "refusal", **_STREAMED_CALLS}
"""The field that holds a part's text, where it is not `text`."""
_PART_KINDS = {"reasoning": ("reasoning_text", "summary_text"), "message": ("output_text", "refusal")}


def verify(body: bytes, dialect: Dialect = "openresponses", framing: Framing = "events") -> list[str]:
    """Return the rules that the stream violates, as `rule: problem`; empty if it is legal.

    Args:
        body: The stream.
        dialect: Whose names the events of raw reasoning have.
        framing: Server-sent events, or the messages of a socket, one for each line.
    """
    check = _Check(dialect)
    if framing == "lines":
        for line in body.splitlines():
            check.message(line)
        check.end()
        return check.violations
    frames = SSEDecoder(max_bytes=len(body) + 1).feed(body)
    done_indices = [index for index, frame in enumerate(frames) if frame.data == b"[DONE]"]
    check.expect(
        bool(done_indices) and done_indices[-1] == len(frames) - 1, "framing: the stream does not end with data: [DONE]"
    )
    check.expect(len(done_indices) < 2, "framing: [DONE] comes more than once")
    for name, data in frames:
        if data != b"[DONE]":
            check.frame(name, data)
    check.end()
    return check.violations


class _Part:
    """The open part."""

    def __init__(self, kind: str, index: int, index_field: str) -> None:
        self.kind = kind
        self.index = index
        self.index_field = index_field
        self.text = ""
        self.has_done = False

    @property
    def content(self) -> dict[str, Any]:
        return {"type": self.kind, _TEXT_FIELDS.get(self.kind, "text"): self.text}


class _Item:
    """The open item, and its parts as they were done."""

    def __init__(self, item: dict[str, Any], index: int) -> None:
        self.opened = item
        self.id = item["id"]
        self.kind = item["type"]
        self.index = index
        self.parts: dict[str, list[dict[str, Any]]] = {"content_index": [], "summary_index": []}
        self.input = ""
        """The input of a call."""


class _Check:
    def __init__(self, dialect: Dialect) -> None:
        self.violations: list[str] = []
        self._sequence = 0
        self._event_types: list[str] = []
        self._terminal: dict[str, Any] | None = None
        self._finished_items: list[dict[str, Any]] = []
        self._ids: set[str] = set()
        self._item: _Item | None = None
        self._part: _Part | None = None
        self._annotation_count = 0
        self._part_kinds = {
            "response.function_call_arguments": "function_call",
            "response.custom_tool_call_input": "custom_tool_call",
        }
        for kind in (OUTPUT_TEXT, REFUSAL, SUMMARY, DIALECTS[dialect].reasoning):
            self._part_kinds[kind.text_event] = str(kind.content_type.__struct_config__.tag)
        """The kind of part that each event streams."""
        self._is_raw_distinct = DIALECTS[dialect].is_raw_distinct

    def frame(self, name: str, data: bytes) -> None:
        kind = self.message(data)
        self.expect(kind is None or name == kind, f"framing: event: {name} carries type {kind}")

    def message(self, data: bytes) -> str | None:
        """Check one event. Return its type, if it has one."""
        try:
            event = msgspec.json.decode(data, type=dict[str, Any])
            kind = msgspec.convert(event.get("type"), str)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.violations.append(f"framing: not an event with a type: {data[:80]!r}")
            return None
        self._event(kind, event)
        return kind

    def end(self) -> None:
        self.expect(self._terminal is not None, "life: there is no terminal event")

    def expect(self, holds: bool, violation: str) -> None:
        if not holds:
            self.violations.append(violation)

    def _event(self, kind: str, event: dict[str, Any]) -> None:
        number = event.get("sequence_number")
        self.expect(number == self._sequence, f"sequence: {kind} has {number}, expected {self._sequence}")
        self._sequence += 1
        self.expect(self._terminal is None, f"life: {kind} after the terminal event")
        try:
            self.violations += self._step(kind, event)
        except (KeyError, TypeError, AttributeError) as error:
            self.violations.append(f"fields: {kind} lacks a field or has one of the wrong type ({error})")
        self._event_types.append(kind)

    def _step(self, kind: str, event: dict[str, Any]) -> Iterator[str]:
        previous = self._event_types[-1] if self._event_types else None
        if previous is None and kind != "response.created":
            yield f"life: the stream begins with {kind}"
        if previous == "error" and kind != "response.failed":
            yield f"life: {kind} follows an error"
        if kind in _OPENING_EVENTS:
            if kind == "response.created" and previous is not None:
                yield "life: response.created comes again"
            if previous is not None and previous not in _OPENING_EVENTS:
                yield f"life: {kind} comes after {previous}"
        elif kind in _TERMINAL_EVENTS:
            yield from self._terminal_event(kind, event)
        elif kind != "error":
            if previous == "response.created":
                yield f"life: {kind} follows response.created"
            yield from self._item_event(kind, event)

    def _terminal_event(self, kind: str, event: dict[str, Any]) -> Iterator[str]:
        response = self._terminal = event["response"]
        self._end_cut_call()
        if self._item is not None:
            yield f"item: {kind} while an item is open"
        if response["output"] != self._finished_items:
            yield "output: the response's output is not the items as they were done"
        if response["status"] != kind.removeprefix("response."):
            yield f"life: {kind} carries status {response['status']}"
        if kind == "response.completed" and any(item.get("status") == "incomplete" for item in self._finished_items):
            yield "incomplete: an incomplete item in a completed response"

    # --- items -------------------------------------------------------------------------------------------------

    def _item_event(self, kind: str, event: dict[str, Any]) -> Iterator[str]:
        if kind == "response.output_item.added":
            yield from self._item_added(event)
        elif kind == "response.output_item.done":
            yield from self._item_done(event)
        else:
            base, _, step = kind.rpartition(".")
            if kind == "response.output_text.annotation.added":
                violations = self._annotation(event)
            elif base in ("response.content_part", "response.reasoning_summary_part"):
                name = "summary_index" if "summary" in base else "content_index"
                violations = self._part_added(name, event) if step == "added" else self._part_done(name, event)
            elif base in self._part_kinds and step in ("delta", "done"):
                violations = self._streamed(base, step, event)
            else:
                yield f"framing: {kind} is no event of this dialect"
                return
            item = self._item
            if item is None or event["item_id"] != item.id or event["output_index"] != item.index:
                yield f"item: {kind} is not about the open item"
            else:
                yield from violations

    def _end_cut_call(self) -> None:
        """Note the open call of a custom tool, which was cut off, as an item of the output."""
        item, part = self._item, self._part
        if item is not None and part is not None and item.kind == "custom_tool_call" and not part.has_done:
            self._finished_items.append({**item.opened, "input": part.text, "status": "incomplete"})
            self._item = self._part = None

    def _item_added(self, event: dict[str, Any]) -> Iterator[str]:
        self._end_cut_call()
        item, index = event["item"], event["output_index"]
        if self._item is not None:
            yield "item: an item is added while another is open"
        if index != len(self._finished_items):
            yield f"item: output_index {index}, expected {len(self._finished_items)}"
        if item["id"] in self._ids:
            yield f"item: there is an item {item['id']} already"
        fields = ("content", "summary", "arguments", "input", "encrypted_content")
        if item["type"] != "compaction" and any(item.get(field) for field in fields):
            yield "item: an item is added with content, which comes later"
        self._ids.add(item["id"])
        self._item = _Item(item, index)
        self._part = _Part(item["type"], 0, "") if item["type"] in _STREAMED_CALLS else None

    def _item_done(self, event: dict[str, Any]) -> Iterator[str]:
        item, done, part = self._item, event["item"], self._part
        self._item = self._part = None
        self._finished_items.append(done)
        if item is None or done["id"] != item.id or event["output_index"] != item.index:
            yield "item: an item is done that is not open"
            return
        if "encrypted_content" in done and item.kind not in ("reasoning", "compaction"):
            yield f"item: a {item.kind} item holds sealed data, which only reasoning items may hold"
        if part is not None and not (part.has_done and part.kind in _STREAMED_CALLS):
            yield "part: an item is done while a part is open"
        if item.kind in _STREAMED_CALLS and done[_STREAMED_CALLS[item.kind]] != item.input:
            yield f"item: the call's {_STREAMED_CALLS[item.kind]} is not what was done"
        for field, name in (("content", "content_index"), ("summary", "summary_index")):
            parts = item.parts[name]
            if item.kind == "reasoning" and field == "content" and not self._is_raw_distinct:
                texts = {part["text"] for part in item.parts["summary_index"]}
                parts = [part for part in done.get(field) or [] if part["text"] in texts]
            if item.kind in _PART_KINDS and (done.get(field) or []) != parts:
                yield f"item: the item's {field} is not its parts as they were done"

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_added(self, name: str, event: dict[str, Any]) -> Iterator[str]:
        item, part, index = self._item, event["part"], event[name]
        assert item is not None
        if self._part is not None:
            yield "part: a part is added while another is open"
        if index != len(item.parts[name]):
            yield f"part: {name} {index}, expected {len(item.parts[name])}"
        if part["type"] not in _PART_KINDS.get(item.kind, ()) or (part["type"] == "summary_text") != (
            "summary" in name
        ):
            yield f"part: a {part['type']} by {name} in a {item.kind} item"
        if part.get(_TEXT_FIELDS.get(part["type"], "text")):
            yield "part: a part is added with text, which comes later"
        self._part = _Part(part["type"], index, name)
        self._annotation_count = 0

    def _part_done(self, name: str, event: dict[str, Any]) -> Iterator[str]:
        item, part, done = self._item, self._part, event["part"]
        assert item is not None
        self._part = None
        item.parts[name].append(done)
        if part is None or part.index_field != name or part.index != event[name]:
            yield "part: a part is done that is not open"
        elif not part.has_done:
            yield "part: a part is done before its text is"
        elif {field: done.get(field) for field in part.content} != part.content:
            yield "part: a part is done with another text than its own"

    def _streamed(self, base: str, step: str, event: dict[str, Any]) -> Iterator[str]:
        part, kind = self._part, self._part_kinds[base]
        if part is None or part.kind != kind or (part.index_field and event[part.index_field] != part.index):
            yield f"part: {base}.{step} without an open part of its kind and index"
        elif part.has_done:
            yield f"part: {base}.{step} after the part's own done"
        elif step == "delta":
            if not event["delta"]:
                yield f"text: an empty {base}.delta"
            part.text += event["delta"]
        else:
            part.has_done = True
            text = event[_TEXT_FIELDS.get(kind, "text")]
            if kind in _STREAMED_CALLS and self._item is not None:
                self._item.input = text
            if text != part.text:
                yield f"text: the text of {base}.done is not what its deltas added up to"
                part.text = text

    def _annotation(self, event: dict[str, Any]) -> Iterator[str]:
        part = self._part
        if part is None or part.kind != "output_text" or event["content_index"] != part.index or part.has_done:
            yield "part: an annotation outside an open text"
        elif event["annotation_index"] != self._annotation_count:
            yield f"part: annotation_index {event['annotation_index']}, expected {self._annotation_count}"
        self._annotation_count += 1
