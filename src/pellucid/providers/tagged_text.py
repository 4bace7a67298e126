"""Answer text that may hold reasoning between tags, as older models write it.

Text that the splitter holds back, because it may become a marker, is released when something else follows (`pause`),
because the order matters. The part stores its markers, so that it can be sent back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .. import tags
from ..emit import Emitter, Key
from ..parts import ThinkingPart
from .frame_template import SkipRule
from .profile import Profile

TEXT: Key = "text"
_REASONING_KEY: Key = "tagged"

HARMONY = "harmony"
"""The value of a profile's `tags` for gpt-oss's own format."""


class TaggedText:
    """Writes text to an emitter, split at the tags of the profile's family; unchanged if the profile has none.

    Args:
        emit: The emitter.
        profile: The profile.
        thinking: Receives the text between the tags; by default it is emitted as reasoning.
        key: The key of the reasoning block.
    """

    def __init__(
        self,
        emit: Emitter,
        profile: Profile,
        thinking: Callable[[str], None] | None = None,
        key: Key = _REASONING_KEY,
    ) -> None:
        self._emit = emit
        self._key = key
        self._thinking = thinking or partial(emit.thinking, key)
        self._splitter = make_splitter(profile)
        self._logprobs: list[dict[str, Any]] | None = None
        self._open_marker: str | None = None
        self._has_answer = False
        self.skip_rule: SkipRule | None = None
        """The rule for the text that was fed last."""

    def feed(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        if self._splitter is None:
            self._emit.text(TEXT, text, logprobs=logprobs)
            self.skip_rule = SkipRule()
        else:
            if logprobs:
                self._logprobs = (self._logprobs or []) + logprobs
            spans = self._splitter.feed(text)
            special = self._splitter.find_special if len(spans) == 1 and spans[0].text == text else None
            self.skip_rule = None if special is None else SkipRule(special, self._splitter.skip)
            self._emit_spans(spans)

    def pause(self) -> None:
        """Release held text, because something else follows.

        White space before the answer stays held, because it is not known yet whether it belongs to the answer. That
        after a closing marker belongs to the marker.
        """
        if self._splitter is not None and (self._has_answer or self._splitter.is_after_reasoning):
            self._emit_spans(self._splitter.pause())

    def end(self) -> None:
        if self._splitter is not None:
            self._emit_spans(self._splitter.end())
            self._splitter = None

    def _emit_spans(self, spans: list[tags.Span]) -> None:
        for kind, text in spans:
            if kind == tags.TEXT:
                self._has_answer = True
                self._emit.text(TEXT, text, logprobs=self._logprobs)
                self._logprobs = None
            elif kind == tags.THINKING:
                self._thinking(text)
            elif kind == tags.OPEN:
                self._open_marker = text
            elif kind == tags.CLOSE and self._open_marker is not None:
                self._emit.thinking(self._key, details={"open": self._open_marker, "close": text})
                self._open_marker = None


def make_splitter(profile: Profile) -> tags.Splitter | None:
    """Make the splitter of a profile; None if its text has no markers, or is harmony, which is more than markers."""
    if profile.tags in (None, HARMONY):
        return None
    return tags.Splitter(tags.family(profile.tags), implicit_start=profile.implicit_start)


def with_markers(part: ThinkingPart) -> str | None:
    """Return reasoning between the markers in which it came; None if it had none."""
    markers = part.provider_details or {}
    if not isinstance(markers.get("open"), str):
        return None
    return f"{markers['open']}{part.content}{markers.get('close', '')}"
