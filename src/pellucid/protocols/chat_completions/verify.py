"""Verifies that a stream keeps the protocol's rules, and names those that it violates.

* framing: every event is a JSON object without a name; the stream ends with `data: [DONE]`, which comes once.
* fields: a chunk has the fields and types that its type needs.
* same: every chunk has the id, model and time of the first.
* life: the role comes in the first chunk and no other; there is one finish reason, in a chunk without content, and then
  at most the usage, without choices; or an error, and then nothing.
* delta: a delta has one kind of content, or only log-probabilities; no text in it is empty.
* thought: the two reasoning fields, where both are present, hold the same text; the stream uses one set of fields.
* call: calls count 0, 1, 2 …; the first delta of each has id, type and name, later ones more of the last call's
  arguments.
* detail: details count 0, 1, 2 …, each complete before the next; a sealed one comes in one piece.
* finish: it is `tool_calls` if, and only if, there are calls, unless the answer was cut off.
* late: citations come once, directly before the finish reason.

A schema defines the type of each field; these rules are those that no schema can express.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...framing import SSEDecoder
from . import types as t

_CONTENT_FIELDS = ("role", "content", "refusal", "tool_calls", "annotations")


def verify(body: bytes) -> list[str]:
    """Return the rules that the stream violates, as `rule: problem`; empty if it is legal."""
    check = _Check()
    frames = SSEDecoder(max_bytes=len(body) + 1).feed(body)
    done_indices = [index for index, frame in enumerate(frames) if frame.data == b"[DONE]"]
    if not done_indices or done_indices[-1] != len(frames) - 1:
        check.violations.append("framing: the stream does not end with data: [DONE]")
    if len(done_indices) > 1:
        check.violations.append("framing: [DONE] comes more than once")
    for name, data in frames:
        if name:
            check.violations.append(f"framing: an event with the name {name}")
        if data != b"[DONE]":
            check.violations += check.frame(data)
    check.violations += check.end()
    return check.violations


class _Check:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self._identity: tuple[str, int, str] | None = None
        self._reasoning_fields: tuple[bool, bool] | None = None
        self._call_count = 0
        self._detail_index = -1
        self._detail_is_sealed = False
        self._has_citations = False
        self._finish_reason: str | None = None
        self._has_ended = False

    def frame(self, data: bytes) -> Iterator[str]:
        if self._has_ended:
            yield "life: something follows the end"
        try:
            if b'"error"' in data and set(msgspec.json.decode(data, type=dict[str, Any])) == {"error"}:
                self._has_ended = True
                if self._identity is None or self._finish_reason is not None:
                    yield "life: an error where no chunk comes before it, or after the finish reason"
                return
            chunk = msgspec.json.decode(data, type=t.ChatCompletionChunk)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            yield f"fields: not a chunk: {error}"
            return
        identity = (chunk.id, chunk.created, chunk.model)
        is_first = self._identity is None
        self._identity = self._identity or identity
        if identity != self._identity:
            yield "same: a chunk of another completion"
        if not chunk.choices:
            self._has_ended = True
            if self._finish_reason is None or not isinstance(chunk.usage, t.ChatUsage):
                yield "life: a chunk without choices that is not the usage after the finish reason"
            return
        choice = chunk.choices[0]
        if (choice.delta.role is not msgspec.UNSET) != is_first:
            yield "life: the role is in the first chunk, and in no other"
        yield from self._choice(choice, is_first)

    def end(self) -> Iterator[str]:
        if self._finish_reason is None and not self._has_ended:
            yield "life: there is neither a finish reason nor an error"

    def _choice(self, choice: t.ChatChunkChoice, is_first: bool) -> Iterator[str]:
        delta = choice.delta
        if choice.index != 0:
            yield f"fields: choice {choice.index}, and there is only one"
        if self._finish_reason is not None:
            yield "life: a delta after the finish reason"
        content_count = sum(getattr(delta, kind) is not msgspec.UNSET for kind in _CONTENT_FIELDS)
        has_reasoning = any(
            field is not msgspec.UNSET for field in (delta.reasoning_content, delta.reasoning, delta.reasoning_details)
        )
        if choice.finish_reason is not None:
            self._finish_reason = choice.finish_reason
            if content_count or has_reasoning:
                yield "life: the finish reason comes with a delta"
            if choice.finish_reason in ("tool_calls", "stop") and (choice.finish_reason == "stop") != (
                not self._call_count
            ):
                yield f"finish: {choice.finish_reason} with {self._call_count} calls"
            return
        if (
            content_count + has_reasoning != 1
            and not is_first
            and (content_count + has_reasoning or not choice.logprobs)
        ):
            yield f"delta: {content_count + has_reasoning} kinds of things in one delta"
        if self._has_citations:
            yield "late: something comes between the citations and the finish reason"
        self._has_citations = isinstance(delta.annotations, list)
        if delta.content == "" or delta.refusal == "":
            yield "delta: an empty text"
        yield from self._reasoning(delta)
        yield from self._call(delta.tool_calls or [])
        yield from self._details(delta.reasoning_details or [])

    def _reasoning(self, delta: t.ChatDelta) -> Iterator[str]:
        texts = [text for text in (delta.reasoning_content, delta.reasoning) if isinstance(text, str)]
        if not texts:
            return
        fields = (isinstance(delta.reasoning_content, str), isinstance(delta.reasoning, str))
        self._reasoning_fields = self._reasoning_fields or fields
        if fields != self._reasoning_fields:
            yield "thought: the field for reasoning changes"
        if len(set(texts)) > 1:
            yield "thought: the two fields differ"
        if not texts[0]:
            yield "delta: an empty text"

    def _call(self, calls: list[t.ChatToolCallDelta]) -> Iterator[str]:
        for call in calls:
            identity = (call.id, call.type, call.function.name)
            if call.index == self._call_count:
                self._call_count += 1
                if msgspec.UNSET in identity:
                    yield f"call: call {call.index} begins without its id, type and name"
            elif call.index != self._call_count - 1:
                yield f"call: more of call {call.index}, and the last one is {self._call_count - 1}"
            elif set(identity) != {msgspec.UNSET}:
                yield f"call: call {call.index} is named again"
            elif not call.function.arguments:
                yield "delta: an empty text"

    def _details(self, details: list[t.ReasoningDetail]) -> Iterator[str]:
        for detail in details:
            is_sealed = detail.type == "reasoning.encrypted"
            continues = detail.index == self._detail_index and not is_sealed and not self._detail_is_sealed
            if not continues and detail.index != self._detail_index + 1:
                yield f"detail: index {detail.index} after {self._detail_index}"
            if not (detail.data if is_sealed else detail.summary):
                yield f"detail: an empty {detail.type}"
            self._detail_index, self._detail_is_sealed = detail.index or 0, is_sealed
