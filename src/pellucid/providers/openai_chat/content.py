"""Readers of the content, which may hold reasoning between markers, and filters for repeated reasoning.

The content is split at a family's tags, or read as harmony messages, as the profile says. Text that a reader holds
back, because it may become a marker, is released when something else follows (`pause`), because the order matters.

`FragmentMerger` serves servers whose reasoning fragments are not simply the next piece of text:

* `cumulative`: every fragment is the whole text so far (DashScope's old default, MiniMax's documentation).
* `detect`: the second fragment decides. If it starts with all of the first and is longer, fragments are cumulative.
* repeats `drop`: a fragment equal to the one before it is a second copy (xAI). A token that is really repeated is lost
  with it, so only the profiles that need this have it.
"""

from __future__ import annotations

from typing import Any, Literal

from ... import tags
from ...emit import Emitter, Key
from ...parts import BuiltinToolCallPart
from ...unicode import TextBuffer
from ..profile import Profile
from ..tagged_text import HARMONY, TEXT, TaggedText


class FragmentMerger:
    """Extracts the new text of each reasoning fragment: `new_text(fragment)`."""

    __slots__ = ("_last", "_mode", "_repeats", "_seen")

    def __init__(
        self,
        mode: Literal["incremental", "cumulative", "detect"] = "incremental",
        repeats: Literal["keep", "drop"] = "keep",
    ) -> None:
        self._mode = mode
        self._repeats = repeats
        self._seen = ""
        self._last: str | None = None

    def new_text(self, fragment: str) -> str:
        """Return the text of a fragment that earlier ones did not have."""
        if self._repeats == "drop":
            if fragment == self._last:
                return ""
            self._last = fragment
        if self._mode == "incremental":
            return fragment
        seen = self._seen
        if self._mode == "detect" and seen:
            cumulative = len(fragment) > len(seen) and fragment.startswith(seen)
            self._mode = "cumulative" if cumulative else "incremental"
            if not cumulative:
                return fragment
        self._seen = fragment
        return fragment[len(seen) :] if fragment.startswith(seen) else fragment


class DuplicateReasoningFilter:
    """Filter for reasoning that a server sends twice, so that the second copy is not emitted again.

    llama.cpp's `deepseek-legacy` sends reasoning in a field and, in tags, in the content. Other servers send a field
    and details. The first copy is the text of the block `key`. The filter stores only how much of it the second copy
    has repeated. White space around either copy makes no difference.
    """

    __slots__ = ("_block", "_emit", "_has_started", "_key", "_repeated_chars", "has_first")

    def __init__(self, emit: Emitter, key: Key) -> None:
        self.has_first = False
        """Whether there is a first copy; set by the code that emits it."""
        self._emit = emit
        self._key = key
        self._block: TextBuffer | None = None
        self._repeated_chars = 0
        """Characters of the block that the second copy has repeated or has written itself."""
        self._has_started = False

    def remaining(self) -> str:
        """Return the text that the second copy has not repeated yet."""
        if not self.has_first:
            return ""
        block = self._emit.open_text(self._key)
        if block is not self._block:
            self._block, self._repeated_chars = block, 0
        return "" if block is None else block.text_from(self._repeated_chars)

    def feed(self, text: str) -> None:
        """Read more of the second copy. Only text after the first difference is emitted."""
        if not self.has_first:
            self._emit.thinking(self._key, text)
            return
        remaining = self.remaining()
        if remaining and not self._has_started:
            self._repeated_chars += len(remaining) - len(remaining.lstrip())
            remaining, text = remaining.lstrip(), text.lstrip()
            self._has_started = bool(remaining and text)
        if remaining.startswith(text):
            self._repeated_chars += len(text)
        else:
            self._emit.thinking(self._key, text.removeprefix(remaining))
            self.remaining()
            self._repeated_chars = self._block.length if self._block is not None else 0


REASONING = "reasoning"
"""The key of the reasoning block, which has no index on this wire."""

_FUNCTION_PREFIX = "functions."
"""The prefix of a harmony recipient that is one of the caller's functions."""


def make_content_reader(
    profile: Profile, emit: Emitter, duplicates: DuplicateReasoningFilter
) -> TaggedText | HarmonyText:
    """Make the reader that the profile names. `duplicates` filters reasoning that a sibling field has sent already."""
    return HarmonyText(emit) if profile.tags == HARMONY else TaggedText(emit, profile, duplicates.feed, REASONING)


class HarmonyText:
    """Reader of gpt-oss's format (messages, channels, recipients), which a server without its parser passes through.

    It has the interface of `TaggedText`.
    """

    skip_rule = None

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._logprobs: list[dict[str, Any]] | None = None
        self._parser = tags.Harmony()
        self._message_count = 0
        """Each message is a block of its own: a preamble is not the beginning of the answer."""
        self._tool = ""
        self._args = TextBuffer()
        self._ended = False

    def feed(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        if self._ended:
            self._emit.text(TEXT, text, logprobs=logprobs)
            return
        if logprobs:
            self._logprobs = (self._logprobs or []) + logprobs
        self._emit_spans(self._parser.feed(text))

    def pause(self) -> None:
        self._emit_spans(self._parser.pause())

    def end(self) -> None:
        self._ended = True
        self._emit_spans(self._parser.end())

    def _emit_spans(self, spans: list[tags.Span]) -> None:
        for kind, text in spans:
            key = (kind, self._message_count)
            if kind == "text":
                self._emit.text(key, text, item=key, logprobs=self._logprobs)
                self._logprobs = None
            elif kind == "thinking":
                self._emit.thinking(key, text)
            elif kind == "tool":
                self._tool = text
                if text.startswith(_FUNCTION_PREFIX):
                    self._emit.tool_call(("tool", self._message_count), name=text.removeprefix(_FUNCTION_PREFIX))
            elif kind == "tool_args":
                if self._tool.startswith(_FUNCTION_PREFIX):
                    self._emit.tool_call(("tool", self._message_count), text)
                else:
                    self._args.add(text)
            elif kind == "tool_end":
                self._end_call()
            else:
                self._message_count += 1

    def _end_call(self) -> None:
        if not self._tool.startswith(_FUNCTION_PREFIX):
            # A builtin tool of the model (python, browser): the model's server runs it.
            provider = self._emit.origin.provider
            self._emit.whole_part(BuiltinToolCallPart(self._tool, self._args.take() or None, provider_name=provider))
        self._message_count += 1
