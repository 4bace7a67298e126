"""The content: an answer, or an answer with the reasoning in it, between markers.

Split at a family's tags, or read as harmony messages, as the row says. What a reader holds back, because it could
become a marker, it lets go when something else follows (`pause`): order is data.
"""

from __future__ import annotations

from typing import Any, Protocol

from ... import tags
from ...emit import Emitter
from ...parts import BuiltinToolCallPart
from ...text import GrowingText
from ..frame_template import SkipRule
from ..profiles import Profile
from ..tagged import HARMONY, TEXT, TaggedText
from .merge import Told

REASONING = "reasoning"
"""The key of the reasoning that has no index on this wire."""

_FUNCTIONS = "functions."
"""What a harmony recipient begins with when it is one of the caller's functions."""


class Content(Protocol):
    @property
    def skip_rule(self) -> SkipRule | None:
        """See `Reader`: of the text that was fed last."""
        ...

    def feed(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None: ...

    def pause(self) -> None:
        """Something else follows."""
        ...

    def end(self) -> None: ...


def content_reader(row: Profile, emit: Emitter, told: Told) -> Content:
    """The reader that the row asks for. `told` is reasoning that a sibling field has told already."""
    return _Harmony(emit) if row.tags == HARMONY else TaggedText(emit, row, told.again, REASONING)


class _Harmony:
    """gpt-oss's own format, which a server without its parser passes on as it is: messages, channels, recipients."""

    skip_rule = None

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._logprobs: list[dict[str, Any]] | None = None
        self._parser = tags.Harmony()
        self._messages = 0
        """Each message is a block of its own: a preamble is not the answer's beginning."""
        self._tool = ""
        self._args = GrowingText()
        self._ended = False

    def feed(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        if self._ended:
            self._emit.text(TEXT, text, logprobs=logprobs)
            return
        if logprobs:
            self._logprobs = (self._logprobs or []) + logprobs
        self._read(self._parser.feed(text))

    def pause(self) -> None:
        self._read(self._parser.pause())

    def end(self) -> None:
        self._ended = True
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
