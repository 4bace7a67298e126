"""Redaction of sensitive data, before an envelope is judged, stored or shown.

    redactor = PatternRedactor.from_rules([Redact(name="key", pattern="sk-[A-Za-z0-9]{16,}")])
    envelope, names = redactor.redact(envelope)          # "… [redacted:key] …", ("key",)

The patterns (RE2's, see `envelopes.regex`) are searched in every string of a payload and of an envelope's unknown
fields, keys included. A name that a sender wrote (an id, the kind, a recipient, the path of a context) is refused if
one matches, because a part of a name cannot be replaced. Names that the gateway generated are not searched. The time is
bounded: if a pattern cannot be decided in a string within `MAX_MATCH_SECONDS`, the whole string is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import thread_time
from typing import Any

import msgspec
from msgspec.structs import replace

from ...envelopes import Envelope
from ...envelopes.envelope import field_error
from ...envelopes.regex import Regex, RegexError
from ...errors import RequestError
from .ids import NEW_ID

MAX_MATCH_SECONDS = 0.05
"""CPU time of one pattern in one string."""

MAX_PROGRAM_SIZE = 5_000
"""Maximum number of instructions of one pattern."""

MAX_WORK = 100_000_000
"""Maximum product of a pattern's instructions and a text's characters. RE2's slowest algorithm takes one nanosecond for
each.
"""

_MATCHES_PER_CLOCK_CHECK = 64
"""Matches between two reads of the clock."""


class Redact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule: text that matches `pattern` is replaced by `[redacted:NAME]`."""

    name: str
    """Its name in the text that replaces the match."""
    pattern: str
    """A regular expression (RE2)."""


class PatternRedactor:
    """Replaces what the operator's patterns match by `[redacted:NAME]`."""

    def __init__(self, rules: Iterable[tuple[str, PatternFinder]]) -> None:
        self._rules = tuple(rules)

    @classmethod
    def from_rules(cls, written: Iterable[Redact], location: str = "redact") -> PatternRedactor:
        """Compile rules.

        Raises:
            RequestError: If a name or a pattern is not valid.
        """
        rules: list[tuple[str, PatternFinder]] = []
        for index, rule in enumerate(written):
            where = f"{location}[{index}]"
            if not rule.name or not rule.name.isprintable() or "]" in rule.name:
                raise _invalid_pattern(f"{where}.name", "a rule has a name, without `]`")
            try:
                rules.append((rule.name, PatternFinder(rule.pattern)))
            except RegexError as error:
                raise _invalid_pattern(f"{where}.pattern", str(error)) from None
        return cls(rules)

    def redact(self, envelope: Envelope) -> tuple[Envelope, tuple[str, ...]]:
        """Redact an envelope.

        Returns:
            The redacted envelope, and the names of the rules that matched.
        """
        if not self._rules:
            return envelope, ()
        matched: dict[str, None] = {}
        clean = {
            name: self._redact_value(value, matched)
            for name in ("payload", "extra", "context_operation")
            if (value := getattr(envelope, name))
        }
        return (replace(envelope, **clean), tuple(matched)) if matched else (envelope, ())

    def check_names(self, **names: Iterable[str]) -> None:
        """Refuse an envelope if a rule matches in one of its names.

        Args:
            names: The names, by field.

        Raises:
            EnvelopeError: If a rule matches.
        """
        if not self._rules:
            return
        for field, texts in names.items():
            matched: dict[str, None] = {}
            for text in texts:
                self._redact_text(NEW_ID.sub("", text), matched)
            for rule in matched:
                raise field_error(
                    field,
                    f"this space redacts what its pattern {rule!r} matches, and a name cannot be redacted; use another",
                    "redacted_name",
                )

    def _redact_value(self, value: Any, matched: dict[str, None]) -> Any:
        if isinstance(value, str):
            return self._redact_text(value, matched)
        if isinstance(value, dict):
            return {self._redact_text(name, matched): self._redact_value(one, matched) for name, one in value.items()}
        if isinstance(value, list):
            return [self._redact_value(one, matched) for one in value]
        return value

    def _redact_text(self, text: str, matched: dict[str, None]) -> str:
        for name, finder in self._rules:
            spans = finder.spans(text)
            if spans == []:
                continue
            matched[name] = None
            mark = f"[redacted:{name}]"
            if spans is None:
                return mark
            pieces, end_of_last = [], 0
            for begin, end in spans:
                pieces += [text[end_of_last:begin], mark]
                end_of_last = end
            text = "".join((*pieces, text[end_of_last:]))
        return text


class PatternFinder:
    """Finds the matches of a pattern: the leftmost ones, and at each place the longest.

    Args:
        source: The pattern.
        clock: Returns CPU seconds.

    Raises:
        RegexError: If the pattern is not valid, or matches the empty text.
    """

    def __init__(self, source: str, clock: Callable[[], float] = thread_time) -> None:
        self._regex = Regex(source, longest=True, max_size=MAX_PROGRAM_SIZE)
        self._clock = clock
        if self._regex.compiled.search("") is not None:
            raise RegexError("it matches an empty text, so it would match everywhere")

    def spans(self, text: str) -> list[tuple[int, int]] | None:
        """Return start and end of the matches, in order.

        Returns:
            None if the time was not enough, or the text is not valid Unicode.
        """
        spans: list[tuple[int, int]] = []
        if len(text) * self._regex.size > MAX_WORK:
            return None
        until = self._clock() + MAX_MATCH_SECONDS
        try:
            for match in self._regex.compiled.finditer(text):
                spans.append(match.span())
                if len(spans) % _MATCHES_PER_CLOCK_CHECK == 0 and self._clock() > until:
                    return None
        except UnicodeEncodeError:
            return None
        return spans


def _invalid_pattern(location: str, message: str) -> RequestError:
    return RequestError(f"{location}: {message}", code="invalid_pattern", param=location)
