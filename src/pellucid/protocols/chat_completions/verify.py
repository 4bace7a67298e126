"""Whether a stream keeps the protocol's rules, and which it breaks.

framing   every event is a JSON object without a name; the stream ends with `data: [DONE]`, which comes once
fields    a chunk has the fields and types that its type needs
same      every chunk has the id, model and time of the first
life      the role comes in the first chunk and no other; one finish reason, in a chunk that says nothing else, and then
          at most the usage, without choices; or an error, and then nothing
delta     a delta says one kind of thing, or nothing but log-probabilities; no text in it is empty
thought   the two fields for reasoning, where both are there, hold the same; only one way of writing it is used
call      calls count 0, 1, 2 …; the first delta of each has id, type and name, later ones more of the last call's
          arguments
detail    details count 0, 1, 2 …, each whole before the next; one that is sealed comes at once
finish    `tool_calls` if, and only if, there are calls, unless the answer was cut
late      citations come once, directly before the finish reason

A schema says what type each field has; this says what no schema can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...framing import SSEDecoder
from . import types as t

_KINDS = ("role", "content", "refusal", "tool_calls", "annotations")


def verify(body: bytes) -> list[str]:
    """The rules that the stream breaks, as `rule: what is wrong`; empty when it is legal."""
    check = _Check()
    frames = SSEDecoder(limit=len(body) + 1).feed(body)
    dones = [index for index, frame in enumerate(frames) if frame.data == b"[DONE]"]
    if not dones or dones[-1] != len(frames) - 1:
        check.broken.append("framing: the stream does not end with data: [DONE]")
    if len(dones) > 1:
        check.broken.append("framing: [DONE] comes more than once")
    for name, data in frames:
        if name:
            check.broken.append(f"framing: an event with the name {name}")
        if data != b"[DONE]":
            check.broken += check.frame(data)
    check.broken += check.end()
    return check.broken


class _Check:
    def __init__(self) -> None:
        self.broken: list[str] = []
        self._first: tuple[str, int, str] | None = None
        self._fields: tuple[bool, bool] | None = None
        self._calls = 0
        self._detail = -1
        self._sealed = False
        self._cited = False
        self._finish: str | None = None
        self._over = False

    def frame(self, data: bytes) -> Iterator[str]:
        if self._over:
            yield "life: something follows the end"
        try:
            if b'"error"' in data and set(msgspec.json.decode(data, type=dict[str, Any])) == {"error"}:
                self._over = True
                if self._first is None or self._finish is not None:
                    yield "life: an error where no chunk comes before it, or after the finish reason"
                return
            chunk = msgspec.json.decode(data, type=t.ChatCompletionChunk)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            yield f"fields: not a chunk: {error}"
            return
        same = (chunk.id, chunk.created, chunk.model)
        opening = self._first is None
        self._first = self._first or same
        if same != self._first:
            yield "same: a chunk of another completion"
        if not chunk.choices:
            self._over = True
            if self._finish is None or not isinstance(chunk.usage, t.ChatUsage):
                yield "life: a chunk without choices that is not the usage after the finish reason"
            return
        choice = chunk.choices[0]
        if (choice.delta.role is not msgspec.UNSET) != opening:
            yield "life: the role is in the first chunk, and in no other"
        yield from self._choice(choice, opening)

    def end(self) -> Iterator[str]:
        if self._finish is None and not self._over:
            yield "life: there is neither a finish reason nor an error"

    def _choice(self, choice: t.ChatChunkChoice, opening: bool) -> Iterator[str]:
        delta = choice.delta
        if choice.index != 0:
            yield f"fields: choice {choice.index}, and there is only one"
        if self._finish is not None:
            yield "life: a delta after the finish reason"
        says = sum(getattr(delta, kind) is not msgspec.UNSET for kind in _KINDS)
        thinks = any(
            field is not msgspec.UNSET for field in (delta.reasoning_content, delta.reasoning, delta.reasoning_details)
        )
        if choice.finish_reason is not None:
            self._finish = choice.finish_reason
            if says or thinks:
                yield "life: the finish reason comes with a delta"
            if choice.finish_reason in ("tool_calls", "stop") and (choice.finish_reason == "stop") != (not self._calls):
                yield f"finish: {choice.finish_reason} with {self._calls} calls"
            return
        if says + thinks != 1 and not opening and (says + thinks or not choice.logprobs):
            yield f"delta: {says + thinks} kinds of things in one delta"
        if self._cited:
            yield "late: something comes between the citations and the finish reason"
        self._cited = isinstance(delta.annotations, list)
        if delta.content == "" or delta.refusal == "":
            yield "delta: an empty text"
        yield from self._thought(delta)
        yield from self._call(delta.tool_calls or [])
        yield from self._details(delta.reasoning_details or [])

    def _thought(self, delta: t.ChatDelta) -> Iterator[str]:
        texts = [text for text in (delta.reasoning_content, delta.reasoning) if isinstance(text, str)]
        if not texts:
            return
        fields = (isinstance(delta.reasoning_content, str), isinstance(delta.reasoning, str))
        self._fields = self._fields or fields
        if fields != self._fields:
            yield "thought: the field for reasoning changes"
        if len(set(texts)) > 1:
            yield "thought: the two fields differ"
        if not texts[0]:
            yield "delta: an empty text"

    def _call(self, calls: list[t.ChatToolCallDelta]) -> Iterator[str]:
        for call in calls:
            named = (call.id, call.type, call.function.name)
            if call.index == self._calls:
                self._calls += 1
                if msgspec.UNSET in named:
                    yield f"call: call {call.index} begins without its id, type and name"
            elif call.index != self._calls - 1:
                yield f"call: more of call {call.index}, and the last one is {self._calls - 1}"
            elif set(named) != {msgspec.UNSET}:
                yield f"call: call {call.index} is named again"
            elif not call.function.arguments:
                yield "delta: an empty text"

    def _details(self, details: list[t.ReasoningDetail]) -> Iterator[str]:
        for detail in details:
            sealed = detail.type == "reasoning.encrypted"
            more = detail.index == self._detail and not sealed and not self._sealed
            if not more and detail.index != self._detail + 1:
                yield f"detail: index {detail.index} after {self._detail}"
            if not (detail.data if sealed else detail.summary):
                yield f"detail: a {detail.type} that says nothing"
            self._detail, self._sealed = detail.index or 0, sealed
