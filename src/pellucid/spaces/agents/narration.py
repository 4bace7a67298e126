"""An agent's run, told as thoughts: its events in, what is to be said of them in the space out.

* Each paragraph of its thinking is one thought, said as soon as it is whole.
* Text before a call of a tool is a thought too: the answer is what comes last.
* A call of one of the agent's own tools is a thought, and what came of it an observation. (Calls of others' tools are
  envelopes of their own.)

Text is never cut. Reasoning that cannot be read (sealed, redacted) is not told.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ...envelopes import kinds
from ...events import (
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseStartEvent,
    TextPartDelta,
    ThinkingPartDelta,
)
from ...parts import TextPart, ThinkingPart, ToolCallPart

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


class Told(NamedTuple):
    kind: str
    payload: dict[str, Any]


class Narration:
    """Of one run. `others`: the tools that are not the agent's own."""

    def __init__(self, others: Container[str] = ()) -> None:
        self._others = others
        self._thinking = ""
        self._text = ""

    def feed(self, events: Iterable[Event]) -> Iterator[Told]:
        for event in events:
            match event:
                case PartStartEvent(part=ThinkingPart(content=str(text))):
                    self._thinking += text
                case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                    self._thinking += text
                    if "\n" in text:
                        yield from self._paragraphs()
                case PartEndEvent(part=ThinkingPart()):
                    yield from self._paragraphs(all=True)
                case ResponseStartEvent():
                    self._text = ""
                case PartStartEvent(part=TextPart(content=text)):
                    self._text += text
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    self._text += text
                case PartStartEvent(part=ToolCallPart()):
                    yield from self._aside()
                case FunctionToolCallEvent(part=call) if call.tool_name not in self._others:
                    yield _thought(f"Calling {call.tool_name}({_written(call.args)})")
                case FunctionToolResultEvent(result=result) if result.tool_name not in self._others:
                    yield Told(kinds.OBSERVATION, {"content": _written(result.content), "tool": result.tool_name})
                case _:
                    pass

    def _paragraphs(self, all: bool = False) -> Iterator[Told]:
        *whole, rest = _PARAGRAPH.split(self._thinking)
        self._thinking = "" if all else rest
        for text in [*whole, rest] if all else whole:
            if text.strip():
                yield _thought(text.strip())

    def _aside(self) -> Iterator[Told]:
        text, self._text = self._text.strip(), ""
        if text:
            yield _thought(text)


def first_words(text: str) -> str:
    """The first paragraph."""
    return _PARAGRAPH.split(text.strip(), 1)[0]


def _thought(text: str) -> Told:
    return Told(kinds.THOUGHT, {"message": text})


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
