"""What differs between two runs of one program, made equal: ids, times, tokens and ports, by order of appearance.

So are the names that the page's build gives to its files, which hold a hash of what is in them: the page has tests of
its own.

Everything else stays as it is, to the byte. An id keeps its prefix and a sealed token its length, so that another kind
of id, or more in a seal, still shows. What the upstream sent (`know`) stays, too: an id of the gateway's in the place
of the provider's is a difference. Of times, which are only the same to the day, `Clock` checks how they relate.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import zlib
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

_DAY = 86_400
_NEAR_DAYS = 60

_VARYING = re.compile(
    r"(?P<seal>eyJ[\w-]{20,}(?:\.[\w-]*){4})"
    r"|(?P<id>(?<![A-Za-z0-9])(?P<prefix>[a-z]{2,12})[_-][0-9a-f]{24,32}(?![0-9a-f]))"
    r"|(?P<token>\b(?P<kind>pst|pk|key)_[A-Za-z0-9_-]{10,})"
    r"|(?P<short>(?<=id\":\")[0-9a-f]{9}(?=\"))"
    r"|(?P<uuid>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|(?<![\w-])[0-9a-f]{32}(?![\w-]))"
    r"|(?P<hash>(?<![\w-])[0-9a-f]{64}(?![\w-]))"
    r"|(?P<asset>(?<=/assets/)(?P<stem>[\w.-]+?)-[\w-]{8}(?P<suffix>\.\w+)\b)"
    r"|(?P<iso>\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?)"
    r"|(?P<date>\b20\d\d-\d\d-\d\d\b(?!T))"
    r"|(?P<port>127\.0\.0\.1:\d{2,5})"
    r"|(?P<time>(?<![\w.])1[78]\d{8}(?:\d{3}|\d{6})?(?:\.\d+)?(?![\w.]))"
)


class Normaliser:
    """Makes the texts of one case comparable. Numbers go on from text to text, so that an id keeps its number."""

    def __init__(self, now: float | None = None) -> None:
        self._known: set[str] = set()
        self._numbers: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._now = time.time() if now is None else now

    def know(self, text: str) -> None:
        """Leave what this text has of ids and times as it is: it is the same in every run."""
        self._known.update(_varying(text))

    def __call__(self, text: str) -> str:
        return _VARYING.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        if match[0] in self._known:
            return match[0]
        group = next(name for name in _RULES if match[name] is not None)
        return _RULES[group](self, match)

    def number(self, kind: str, text: str) -> str:
        if text not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[text] = f"<{kind} {self._counts[kind]}>"
        return self._numbers[text]

    def _time(self, match: re.Match[str]) -> str:
        """Seconds, milliseconds or microseconds since 1970, as days from now (a retention is some days)."""
        digits = len(match[0].partition(".")[0])
        seconds = float(match[0]) / 10 ** (digits - 10)
        unit = {10: "s", 13: "ms", 16: "us"}[digits]
        return self._days(seconds, f" {unit}") or match[0]

    def _iso(self, match: re.Match[str]) -> str:
        try:
            text = match[0].removesuffix("Z").removesuffix("+00:00")
            return self._days(datetime.fromisoformat(f"{text}+00:00").timestamp(), "") or match[0]
        except ValueError:
            return match[0]

    def _date(self, match: re.Match[str]) -> str:
        """A day. Yesterday and tomorrow are today: a run may go on past midnight."""
        try:
            noon = datetime.fromisoformat(f"{match[0]}T12:00:00+00:00").timestamp()
        except ValueError:
            return match[0]
        return "<today>" if abs(noon - self._now) < 1.5 * _DAY else match[0]

    def _days(self, seconds: float, unit: str) -> str | None:
        days = round((seconds - self._now) / _DAY)
        return None if abs(days) > _NEAR_DAYS else f"<now{f'{days:+} days' if days else ''}{unit}>"


@lru_cache(256)  # the same responses are played in many cases
def _varying(text: str) -> frozenset[str]:
    return frozenset(match[0] for match in _VARYING.finditer(text))


_RULES: dict[str, Callable[[Normaliser, re.Match[str]], str]] = {
    "seal": lambda self, match: self.number("seal", match[0]) + ("" if _is_session(match) else f"[{len(match[0])}]"),
    "id": lambda self, match: self.number(match["prefix"], match[0]),
    "token": lambda self, match: self.number(match["kind"], match[0]),
    "short": lambda self, match: self.number("short", match[0]),
    "uuid": lambda self, match: self.number("uuid", match[0]),
    "hash": lambda self, match: self.number("hash", match[0]),
    "asset": lambda self, match: f"{match['stem']}-<build>{match['suffix']}",
    "iso": Normaliser._iso,
    "date": Normaliser._date,
    "port": lambda self, match: "127.0.0.1:<port>",
    "time": Normaliser._time,
}


class Clock:
    """How the times of one case relate: what is made has one time wherever it is named, and ends after it began."""

    _PAIRS = (("created_at", "completed_at"), ("created_at", "updated_at"), ("started_at", "ended_at"))
    _WITH_TIMES = re.compile(r'"(?:created|created_at|started_at)":\s?\d')

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], float] = {}

    def faults(self, text: str) -> list[str]:
        """What is wrong with the times of a text that is JSON, or a stream of events with JSON."""
        if self._WITH_TIMES.search(text) is None:
            return []
        lines = [line[6:] for line in text.split("\n") if line.startswith("data: {")] or [text]
        names: list[str] = []
        for line in lines:
            with contextlib.suppress(ValueError):
                self._look(json.loads(line), names)
        return names

    def _look(self, value: Any, names: list[str]) -> None:
        if isinstance(value, list):
            for entry in value:
                self._look(entry, names)
        if not isinstance(value, dict):
            return
        for first, last in self._PAIRS:
            times = value.get(first), value.get(last)
            if isinstance(times[0], int | float) and isinstance(times[1], int | float) and times[1] < times[0]:
                names.append(f"{last} before {first}")
        id = value.get("id")
        for name in ("created", "created_at"):
            made = value.get(name)
            if not isinstance(id, str) or not isinstance(made, int | float):
                continue
            if self._made.setdefault((id, name), made) != made:
                names.append(f"another {name} of one {re.split('[_-]', id)[0]}")
        for entry in value.values():
            self._look(entry, names)


def _is_session(match: re.Match[str]) -> bool:
    """Whether it is a browser's cookie: it holds a time, whose digits are now more, now fewer."""
    return match.string.endswith("pellucid_session=", 0, match.start())


def as_text(data: bytes) -> str:
    """Bytes as text: unpacked where they are compressed, with escapes where they are no UTF-8."""
    if data[:1] in (b"x", b"h"):  # zlib's header, for a window of 32 or of 16 KiB
        with contextlib.suppress(zlib.error):
            data = zlib.decompress(data)
    return data.decode("utf-8", "backslashreplace")
