"""Whether a stream keeps the specification's rules, and which it breaks.

framing      every event's `event:` line equals its `type`; the stream ends with `data: [DONE]`
sequence     `sequence_number` counts 0, 1, 2 … without a gap
life         `response.created` first, then `queued` or `in_progress`; exactly one terminal event, last
item         `output_item.added` before anything of an item, `.done` after; one open at a time; `output_index`
             counts up from 0
part         a part is added, gets its deltas, its own `done`, and `content_part.done`; indices count up in the item
text         the `done` text is what the deltas added up to
output       the terminal event's `output` is the items as they were done
incomplete   an incomplete item is the last one, and the response is then not completed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...framing import SSEDecoder
from .encode import REASONING_EVENTS, Dialect

_LIFE = ("response.created", "response.queued", "response.in_progress")
_TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def verify(body: bytes, dialect: Dialect = "openresponses") -> list[str]:
    """The rules that the stream breaks, as `rule: what is wrong`; empty when it is legal."""
    check = _Check(dialect)
    frames = SSEDecoder().feed(body)
    if not frames or frames[-1].data != b"[DONE]":
        check.broken.append("framing: the stream does not end with data: [DONE]")
    for name, data in frames:
        if data == b"[DONE]":
            continue
        event = msgspec.json.decode(data)
        if name != event["type"]:
            check.broken.append(f"framing: event: {name} carries type {event['type']}")
        check.event(event)
    check.end()
    return check.broken


class _Check:
    def __init__(self, dialect: Dialect) -> None:
        self.broken: list[str] = []
        self._sequence = 0
        self._seen: list[str] = []
        self._terminal: dict[str, Any] | None = None
        self._done: list[dict[str, Any]] = []
        self._item: dict[str, Any] | None = None
        self._part: dict[str, Any] | None = None
        self._text = ""
        self._counts: dict[str, int] = {}
        self._streams = {
            "response.output_text": "text",
            "response.refusal": "refusal",
            REASONING_EVENTS[dialect]: "text",
            "response.reasoning_summary_text": "text",
            "response.function_call_arguments": "arguments",
        }

    def event(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        self._expect(
            event.get("sequence_number") == self._sequence,
            f"sequence: {kind} has {event.get('sequence_number')}, expected {self._sequence}",
        )
        self._sequence += 1
        self._expect(self._terminal is None, f"life: {kind} after the terminal event")
        if not self._seen:
            self._expect(kind == "response.created", f"life: the stream begins with {kind}")
        self._seen.append(kind)
        for broken in self._step(kind, event):
            self.broken.append(broken)

    def end(self) -> None:
        self._expect(self._terminal is not None, "life: there is no terminal event")
        if len(self._seen) > 1:
            self._expect(self._seen[1] in _LIFE[1:], f"life: {self._seen[1]} follows response.created")

    def _expect(self, holds: bool, broken: str) -> None:
        if not holds:
            self.broken.append(broken)

    def _step(self, kind: str, event: dict[str, Any]) -> Iterator[str]:
        if kind in _LIFE or kind == "error":
            return
        if kind in _TERMINAL:
            yield from self._end_of_life(kind, event)
        elif kind == "response.output_item.added":
            yield from self._added(event)
        elif kind == "response.output_item.done":
            yield from self._item_done(event)
        else:
            yield from self._inside(kind, event)

    def _end_of_life(self, kind: str, event: dict[str, Any]) -> Iterator[str]:
        response = self._terminal = event["response"]
        if self._item is not None:
            yield f"item: {kind} while an item is open"
        if response["output"] != self._done:
            yield "output: the response's output is not the items as they were done"
        if response["status"] != kind.removeprefix("response."):
            yield f"life: {kind} carries status {response['status']}"
        cut = [index for index, item in enumerate(self._done) if item.get("status") == "incomplete"]
        if cut and (cut != [len(self._done) - 1] or kind == "response.completed"):
            yield "incomplete: an incomplete item that is not last, or in a completed response"

    def _added(self, event: dict[str, Any]) -> Iterator[str]:
        if self._item is not None:
            yield "item: an item is added while another is open"
        if event["output_index"] != len(self._done):
            yield f"item: output_index {event['output_index']}, expected {len(self._done)}"
        self._item = {"id": event["item"]["id"], "output_index": event["output_index"]}
        self._counts = {}

    def _item_done(self, event: dict[str, Any]) -> Iterator[str]:
        if self._item is None or event["item"]["id"] != self._item["id"]:
            yield "item: an item is done that is not open"
        if self._part is not None:
            yield "part: an item is done while a part is open"
        self._done.append(event["item"])
        self._item = None

    def _inside(self, kind: str, event: dict[str, Any]) -> Iterator[str]:
        item = self._item
        if item is None or event.get("item_id") != item["id"] or event.get("output_index") != item["output_index"]:
            yield f"item: {kind} is not about the open item"
            return
        base, _, step = kind.rpartition(".")
        if base in ("response.content_part", "response.reasoning_summary_part"):
            yield from self._part_bracket(base, step, event)
        elif base in self._streams:
            yield from self._streamed(base, step, event)
        elif kind != "response.output_text.annotation.added":
            yield f"framing: {kind} is no event of this dialect"

    def _part_bracket(self, base: str, step: str, event: dict[str, Any]) -> Iterator[str]:
        name = "summary_index" if "summary" in base else "content_index"
        if step == "added":
            if self._part is not None:
                yield "part: a part is added while another is open"
            if event[name] != self._counts.get(name, 0):
                yield f"part: {name} {event[name]}, expected {self._counts.get(name, 0)}"
            self._part = {name: event[name]}
            self._text = ""
        else:
            if self._part is None or self._part.get(name) != event[name]:
                yield "part: a part is done that is not open"
            elif not self._part.get("done"):
                yield "part: a part is done before its text is"
            self._counts[name] = self._counts.get(name, 0) + 1
            self._part = None

    def _streamed(self, base: str, step: str, event: dict[str, Any]) -> Iterator[str]:
        if base == "response.function_call_arguments":
            # A call has no content part: its arguments are bracketed by the item alone.
            if step == "delta":
                self._counts["arguments"] = 1
                self._text = self._text + event["delta"] if self._part is not None else event["delta"]
                self._part = {"arguments": True}
                return
            if event["arguments"] != (self._text if self._part is not None else ""):
                yield "text: the arguments are not what their deltas added up to"
            self._part = None
            return
        if self._part is None:
            yield f"part: {base}.{step} without an open part"
            return
        if step == "delta":
            if not event["delta"]:
                yield f"text: an empty {base}.delta"
            self._text += event["delta"]
        else:
            if event[self._streams[base]] != self._text:
                yield f"text: the text of {base}.done is not what its deltas added up to"
            self._part["done"] = True
