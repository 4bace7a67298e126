"""The content: an answer, or an answer with the reasoning in it, between markers.

Three ways to read it, chosen by the row: as it is; split at a family's tags; as harmony messages. What a reader holds
back, because it could become a marker, it lets go when something else follows (`pause`): order is data.
"""

from __future__ import annotations

from typing import Any, Protocol

from ... import tags
from ...emit import Emitter
from ...parts import BuiltinToolCallPart
from ...text import GrowingText
from ..profiles import Profile
from .merge import Told

REASONING, TEXT = "reasoning", "text"
"""The keys of the blocks that have no index on this wire."""

HARMONY = "harmony"
"""What a row's `tags` says for gpt-oss's own format."""

_FUNCTIONS = "functions."
"""What a harmony recipient begins with when it is one of the caller's functions."""


class Content(Protocol):
    def feed(self, text: str) -> None: ...

    def note(self, logprobs: list[dict[str, Any]]) -> None:
        """Log-probabilities of the text that comes next."""
        ...

    def pause(self) -> None:
        """Something else follows."""
        ...

    def end(self) -> None: ...


def content_reader(row: Profile, emit: Emitter, told: Told) -> Content:
    """The reader that the row asks for. `told` is reasoning that a sibling field has told already."""
    if row.tags is None:
        return PlainContent(emit)
    if row.tags == HARMONY:
        return _Harmony(emit)
    return _Tagged(emit, told, tags.Splitter(tags.FAMILIES[row.tags], implicit_start=row.implicit_start))


class PlainContent:
    """Content is content."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._logprobs: list[dict[str, Any]] | None = None

    def feed(self, text: str) -> None:
        self._emit.text(TEXT, text, logprobs=self._logprobs)
        self._logprobs = None

    def note(self, logprobs: list[dict[str, Any]]) -> None:
        self._logprobs = (self._logprobs or []) + logprobs

    def pause(self) -> None:
        pass

    def end(self) -> None:
        pass


class _Tagged(PlainContent):
    """Reasoning stands between tags. The markers are kept with the part, for a verbatim replay."""

    def __init__(self, emit: Emitter, told: Told, splitter: tags.Splitter) -> None:
        super().__init__(emit)
        self._told = told
        self._splitter = splitter
        self._open: str | None = None
        self._answered = False
        self._tail = False
        """Whether answer text may be held back: not the white space before an answer."""

    def feed(self, text: str) -> None:
        self._read(self._splitter.feed(text))
        self._tail = self._answered

    def pause(self) -> None:
        if self._tail:
            self._read(self._splitter.pause())
            self._tail = False

    def end(self) -> None:
        self._read(self._splitter.end())

    def _read(self, spans: list[tags.Span]) -> None:
        for kind, text in spans:
            if kind == "text":
                self._answered = True
                super().feed(text)
            elif kind == "thinking":
                self._emit.thinking(REASONING, self._told.news(text))
            elif kind == "open":
                self._open = text
            elif kind == "close" and self._open is not None:
                self._emit.thinking(REASONING, details={"open": self._open, "close": text})
                self._open = None


class _Harmony(PlainContent):
    """gpt-oss's own format, which a server without its parser passes on as it is: messages, channels, recipients."""

    def __init__(self, emit: Emitter) -> None:
        super().__init__(emit)
        self._parser = tags.Harmony()
        self._messages = 0
        """Each message is a block of its own: a preamble is not the answer's beginning."""
        self._tool = ""
        self._args = GrowingText()

    def feed(self, text: str) -> None:
        self._read(self._parser.feed(text))

    def pause(self) -> None:
        self._read(self._parser.pause())

    def end(self) -> None:
        self._read(self._parser.end())

    def _read(self, spans: list[tags.Span]) -> None:
        for kind, text in spans:
            key = (kind, self._messages)
            if kind == "text":
                self._emit.text(key, text, item=key, logprobs=self._logprobs)
                self._logprobs = None
            elif kind == "thinking":
                self._emit.thinking(key, text)
            elif kind == "tool":
                self._tool = text
                if text.startswith(_FUNCTIONS):
                    self._emit.tool_call(("tool", self._messages), name=text.removeprefix(_FUNCTIONS))
            elif kind == "tool_args":
                if self._tool.startswith(_FUNCTIONS):
                    self._emit.tool_call(("tool", self._messages), text)
                else:
                    self._args.add(text)
            elif kind == "tool_end":
                self._end_of_call()
            else:
                self._messages += 1

    def _end_of_call(self) -> None:
        if not self._tool.startswith(_FUNCTIONS):
            # A tool of the model's own (python, browser): whoever runs the model runs it.
            provider = self._emit.origin.provider
            self._emit.whole(BuiltinToolCallPart(self._tool, self._args.take() or None, provider_name=provider))
        self._messages += 1
