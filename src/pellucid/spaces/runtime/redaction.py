"""Sensitive data is taken out before anybody judges, keeps or sees it.

    redactor = Redactor.of([Redact(name="key", pattern="sk-[A-Za-z0-9]{16,}")])
    envelope, names = redactor.envelope(envelope)        # "… [redacted:key] …", ("key",)

Patterns (RE2's, see `envelopes.regex`) are looked for in every string of a payload and of what is unknown in an
envelope, keys too. None can make anybody wait: a string in which it cannot be found out within `SECONDS` is taken out
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import thread_time
from typing import Any, Protocol

from msgspec.structs import replace

from ...envelopes import Envelope
from ...envelopes.regex import NotRegular, Regex
from ...errors import RequestError

SECONDS = 0.05
"""CPU time of one pattern in one string."""

MAX_SIZE = 5_000
"""Instructions of one pattern."""

MAX_WORK = 100_000_000
"""Instructions of a pattern times characters of a text: RE2's slowest way takes a nanosecond for each of them."""

_EACH = 64
"""Matches between two looks at the clock."""


class Rule(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def pattern(self) -> str: ...


class Redactor:
    def __init__(self, rules: Iterable[tuple[str, Finder]]) -> None:
        self._rules = tuple(rules)

    @classmethod
    def of(cls, written: Iterable[Rule], at: str = "redact") -> Redactor:
        """Raises `RequestError` for a pattern that is none."""
        rules: list[tuple[str, Finder]] = []
        for number, one in enumerate(written):
            where = f"{at}[{number}]"
            if not one.name or not one.name.isprintable() or "]" in one.name:
                raise _wrong(f"{where}.name", "a rule has a name, without `]`")
            try:
                rules.append((one.name, Finder(one.pattern)))
            except NotRegular as error:
                raise _wrong(f"{where}.pattern", str(error)) from None
        return cls(rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def envelope(self, envelope: Envelope) -> tuple[Envelope, tuple[str, ...]]:
        """The envelope without what must not be seen, and the names of the rules that found something."""
        if not self._rules:
            return envelope, ()
        hit: dict[str, None] = {}
        clean = {
            name: self._value(value, hit)
            for name in ("payload", "extra", "context_operation")
            if (value := getattr(envelope, name))
        }
        return (replace(envelope, **clean), tuple(hit)) if hit else (envelope, ())

    def _value(self, value: Any, hit: dict[str, None]) -> Any:
        if isinstance(value, str):
            return self._text(value, hit)
        if isinstance(value, dict):
            return {self._text(name, hit): self._value(one, hit) for name, one in value.items()}
        if isinstance(value, list):
            return [self._value(one, hit) for one in value]
        return value

    def _text(self, text: str, hit: dict[str, None]) -> str:
        for name, finder in self._rules:
            spans = finder.spans(text)
            if spans == []:
                continue
            hit[name] = None
            mark = f"[redacted:{name}]"
            if spans is None:
                return mark
            pieces, past = [], 0
            for begin, end in spans:
                pieces += [text[past:begin], mark]
                past = end
            text = "".join((*pieces, text[past:]))
        return text


class Finder:
    """Where a pattern is found in a text: the leftmost places, and at each the longest match.

    Raises `NotRegular`. `clock` gives CPU seconds.
    """

    def __init__(self, source: str, clock: Callable[[], float] = thread_time) -> None:
        self._regex = Regex(source, longest=True, max_size=MAX_SIZE)
        self._clock = clock
        if self._regex.compiled.search("") is not None:
            raise NotRegular("it is found in an empty text, so it would be found everywhere")

    def spans(self, text: str) -> list[tuple[int, int]] | None:
        """From and to, in order. None: it was not found out in time, or the text is no Unicode."""
        found: list[tuple[int, int]] = []
        if len(text) * self._regex.size > MAX_WORK:
            return None
        until = self._clock() + SECONDS
        try:
            for match in self._regex.compiled.finditer(text):
                found.append(match.span())
                if len(found) % _EACH == 0 and self._clock() > until:
                    return None
        except UnicodeEncodeError:
            return None
        return found


def _wrong(at: str, said: str) -> RequestError:
    return RequestError(f"{at}: {said}", code="invalid_pattern", param=at)
