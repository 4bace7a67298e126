"""What differs between two runs of one program, made equal: ids, times, tokens and ports, by order of appearance.

Everything else stays as it is, to the byte. An id keeps its prefix and a sealed token its length, so that another kind
of id, or more in a seal, still shows.
"""

from __future__ import annotations

import contextlib
import re
import time
import zlib
from collections.abc import Callable
from datetime import datetime

_DAY = 86_400
_NEAR_DAYS = 60

_VARYING = re.compile(
    r"(?P<seal>eyJ[\w-]{20,}(?:\.[\w-]*){4})"
    r"|(?P<id>(?<![A-Za-z0-9])(?P<prefix>[a-z]{2,12})[_-][0-9a-f]{24,32}(?![0-9a-f]))"
    r"|(?P<token>\b(?P<kind>pst|pk|key)_[A-Za-z0-9_-]{10,})"
    r"|(?P<uuid>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|(?<![\w-])[0-9a-f]{32}(?![\w-]))"
    r"|(?P<hash>(?<![\w-])[0-9a-f]{64}(?![\w-]))"
    r"|(?P<iso>\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?)"
    r"|(?P<port>127\.0\.0\.1:\d{2,5})"
    r"|(?P<time>(?<![\w.])1[78]\d{8}(?:\d{3}|\d{6})?(?:\.\d+)?(?![\w.]))"
)


class Normaliser:
    """Makes the texts of one case comparable. Numbers go on from text to text, so that an id keeps its number."""

    def __init__(self, now: float | None = None) -> None:
        self._numbers: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._now = time.time() if now is None else now

    def __call__(self, text: str) -> str:
        return _VARYING.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        assert match.lastgroup is not None
        group = next(name for name in _RULES if match[name] is not None)
        return _RULES[group](self, match)

    def _number(self, kind: str, text: str) -> str:
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

    def _days(self, seconds: float, unit: str) -> str | None:
        days = round((seconds - self._now) / _DAY)
        return None if abs(days) > _NEAR_DAYS else f"<now{f'{days:+} days' if days else ''}{unit}>"


_RULES: dict[str, Callable[[Normaliser, re.Match[str]], str]] = {
    "seal": lambda self, match: self._number("seal", match[0]) + f"[{len(match[0])}]",
    "id": lambda self, match: self._number(match["prefix"], match[0]),
    "token": lambda self, match: self._number(match["kind"], match[0]),
    "uuid": lambda self, match: self._number("uuid", match[0]),
    "hash": lambda self, match: self._number("hash", match[0]),
    "iso": Normaliser._iso,
    "port": lambda self, match: "127.0.0.1:<port>",
    "time": Normaliser._time,
}


def as_text(data: bytes) -> str:
    """Bytes as text: unpacked where they are compressed, with escapes where they are no UTF-8."""
    if data[:1] == b"x":
        with contextlib.suppress(zlib.error):
            data = zlib.decompress(data)
    return data.decode("utf-8", "backslashreplace")
