"""Envelopes on a terminal: one lane for each participant, by colour; thinking dim, and further in the deeper it is.

ada           Should we deploy?
security    ╭ Should we deploy?
security    │ Auth changes need careful review.
security    │ → security_scan {"path": "auth/"} (to tools)
tools       │ ← 2 findings
security    ╰ The risk is too high.  (0.92)
security      Do not deploy.

Comings and goings are told a moment later, so that those of one participant are one line.

Who came and went, in as few words as it takes: successive comings and goings of one participant are one line.

alice left and came back, 3 times
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
import msgspec
from rich.console import Console
from rich.text import Text

from ..envelopes import context as paths
from ..envelopes import kinds
from ..envelopes.envelope import Envelope
from ..envelopes.kinds import text_of
from ..envelopes.mcp import given_to, text_in, tool_of
from ..envelopes.translate import encode
from .options import visible

_WORDS = {"join": "came", "leave": "left", "invited": "may come"}
_OFTEN = {
    ("join", 0): "came and left",
    ("leave", 0): "left and came back",
    ("join", 1): "came, left and came back",
    ("leave", 1): "left, came back and left",
}
"""By what came first, and whether what came last is the same."""


def comings(told: Sequence[Envelope]) -> list[str]:
    """What `system/presence` tells, each participant in the place where it was first told of."""
    of: dict[str, list[str]] = {}
    for envelope in told:
        participant = envelope.payload.get("participant")
        who = participant.get("id") if isinstance(participant, dict) else None
        events = of.setdefault(str(who or "?"), [])
        event = str(envelope.payload.get("event"))
        if events[-1:] != [event]:
            events.append(event)
    return [f"{who} {_did(events)}" for who, events in of.items()]


def _did(events: Sequence[str]) -> str:
    if len(events) == 1 or not set(events) <= {"join", "leave"}:
        return ", ".join(_WORDS.get(event, "?") for event in events)
    times = len(events) // 2
    return _OFTEN[events[0], len(events) % 2] + (f", {times} times" if times > 1 else "")


COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta", "bright_green")
_LONGEST = 2_000
"""Characters of a call's arguments, or of what came of it, that are shown. `--json` shows all."""
GATHERS_SECONDS = 1.0
"""How long comings and goings are gathered where nothing else is said."""


class Line(NamedTuple):
    mark: str
    text: str
    style: str = ""


def _line(envelope: Envelope) -> Line:
    label = kinds.kind_of(envelope.kind).label
    mark, style = label.mark, label.style
    if envelope.context:
        mark = f"│ {mark}".rstrip() if label.nested_bar else mark
        style = style if label.nested_style is None else label.nested_style
    if label.says == "result" and envelope.payload.get("error") is not None:
        style = "red"
    return Line(mark, label.lead + _SAYS[label.says](envelope), style)


def _opening(envelope: Envelope) -> str:
    return text_of(envelope) or "…"


def _severity(envelope: Envelope) -> str:
    severity = envelope.payload.get("severity")
    return f"{severity}: {text_of(envelope)}" if severity else text_of(envelope)


def _confidence(envelope: Envelope) -> str:
    return text_of(envelope) + _sure(envelope)


def _conclusion(envelope: Envelope) -> str:
    recommended = envelope.payload.get("recommendation")
    text = text_of(envelope)
    if isinstance(recommended, str) and recommended != text:
        text = f"{text}: {recommended}" if text else recommended
    return (text or "done") + _sure(envelope)


def _call(envelope: Envelope) -> str:
    given = given_to(envelope)
    name = tool_of(envelope) or envelope.payload.get("method", "?")
    return f"{name} {_short(given)}" if given else f"{name}"


def _result(envelope: Envelope) -> str:
    error, result = envelope.payload.get("error"), envelope.payload.get("result")
    if error is not None:
        return _short(error)
    text = text_in(result)
    return _short(result if text is None else text)


def _reason(envelope: Envelope) -> str:
    reason = envelope.payload.get("reason")
    return f": {reason}" if isinstance(reason, str) and reason else ""


def _kind(envelope: Envelope) -> str:
    said = text_of(envelope)
    more = said or (_short(envelope.payload) if envelope.payload else "")
    return f"{envelope.kind} {more}".rstrip()


_SAYS: dict[kinds.Says, Callable[[Envelope], str]] = {
    "words": text_of,
    "opening": _opening,
    "severity": _severity,
    "confidence": _confidence,
    "conclusion": _conclusion,
    "call": _call,
    "result": _result,
    "reason": _reason,
    "nothing": lambda envelope: "",
    "kind": _kind,
}


class Lanes:
    """Where envelopes are shown. `as_json`: for programs."""

    def __init__(self, as_json: bool = False) -> None:
        self._as_json = as_json
        self._console = Console(highlight=False, soft_wrap=True, emoji=False)
        self._colours: dict[str, str] = {}
        self._came: list[Envelope] = []
        """Comings and goings that are not told yet."""
        self._soon: asyncio.TimerHandle | None = None

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        self._tell_comings()

    def show(self, envelope: Envelope, as_said: bool = False) -> None:
        """`as_said`: all of it is replayed, and shown as it was."""
        if self._as_json:
            click.echo(encode(envelope, "mew/v0.4"))
            return
        if envelope.kind == kinds.PRESENCE and not envelope.is_erased:
            self._came.append(envelope)
            if self._soon is None:
                self._soon = asyncio.get_running_loop().call_later(GATHERS_SECONDS, self._tell_comings)
            return
        self._tell_comings()
        line = _line(envelope)
        if envelope.is_erased:
            line = Line(line.mark, "(erased)", "dim italic")
        indent = "  " * (paths.depth(envelope.context) - (envelope.kind != kinds.START))
        to = f"  (to {', '.join(envelope.to)})" if envelope.to and envelope.family != "system" else ""
        name = "" if envelope.kind == kinds.WELCOME else envelope.sender
        lead = f"{visible(name):<12} {indent if envelope.context else ''}{line.mark:<1} "
        first, *more = visible(line.text + to).splitlines() or [""]
        shown = Text(lead, style=self._colour(name))
        shown.append(first, style=line.style)
        bar = lead[: len(lead) - len(line.mark.strip() or " ") - 1] + ("│ " if line.mark[:1] in "╭│" else "  ")
        for text in more:
            shown.append(f"\n{' ' * 12}{bar[12:]}", style=self._colour(name))
            shown.append(text, style=line.style)
        for flag in envelope.flags:
            shown.append(f"\n{' ' * 12}{bar[12:]}", style=self._colour(name))
            shown.append(f"⚑ {visible(flag.message)}", style="yellow")
        if envelope.replayed and not as_said:
            shown.stylize("dim")
        self._console.print(shown)

    def tell(self, text: str) -> None:
        """A word of our own."""
        if not self._as_json:
            self._tell_comings()
            self._console.print(Text(visible(text), style="dim italic"))

    def _tell_comings(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        came, self._came = self._came, []
        for line in comings(came):
            self._console.print(Text(f"{'':<14} {visible(line)}", style="dim italic"))

    def _colour(self, name: str) -> str:
        if name not in self._colours:
            self._colours[name] = COLOURS[len(self._colours) % len(COLOURS)] if name else "dim"
        return self._colours[name]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text) - _LONGEST} characters more)"


def _sure(envelope: Envelope) -> str:
    confidence = envelope.payload.get("confidence")
    return f"  ({confidence:g})" if isinstance(confidence, int | float) and not isinstance(confidence, bool) else ""
