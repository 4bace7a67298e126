"""Prints envelopes on a terminal: a colour for each participant; reasoning dim, and indented by its depth.

ada           Should we deploy?
security    ╭ Should we deploy?
security    │ Auth changes need careful review.
security    │ → security_scan {"path": "auth/"} (to tools)
tools       │ ← 2 findings
security    ╰ The risk is too high.  (0.92)
security      Do not deploy.

Presence events (a participant joined or left) are collected for a moment. Successive events of one participant become
one line:

alice left and came back, 3 times

Requests that only ask what there is (`tools/list` …), and their responses, are left out, unless they are wanted.
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
from ..envelopes.mcp import CANCELLED, is_discovery, request_arguments, result_text, tool_of
from ..envelopes.translate import DEFAULT_DIALECT, encode
from .options import strip_controls

_EVENT_WORDS = {"join": "joined", "leave": "left", "invited": "may come"}
_REPEATED_EVENT_WORDS = {
    ("join", 0): "joined and left",
    ("leave", 0): "left and came back",
    ("join", 1): "joined, left and came back",
    ("leave", 1): "left, came back and left",
}
"""By the first event, and by whether the last event is the same (1) or not (0)."""


def presence_lines(envelopes: Sequence[Envelope]) -> list[str]:
    """Summarise presence envelopes: one line for each participant, in the order of their first events."""
    events_by_participant: dict[str, list[str]] = {}
    for envelope in envelopes:
        participant = envelope.payload.get("participant")
        who = participant.get("id") if isinstance(participant, dict) else None
        events = events_by_participant.setdefault(str(who or "?"), [])
        event = str(envelope.payload.get("event"))
        if events[-1:] != [event]:
            events.append(event)
    return [f"{who} {_describe_presence(events)}" for who, events in events_by_participant.items()]


def _describe_presence(events: Sequence[str]) -> str:
    if len(events) == 1 or not set(events) <= {"join", "leave"}:
        return ", ".join(_EVENT_WORDS.get(event, "?") for event in events)
    times = len(events) // 2
    return _REPEATED_EVENT_WORDS[events[0], len(events) % 2] + (f", {times} times" if times > 1 else "")


COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta", "bright_green")
_MAX_SHOWN_CHARACTERS = 2_000
"""Limit for the characters of a call's arguments or result that are shown. `--json` shows all."""
_LISTED = ("tools", "prompts", "resources", "resourceTemplates", "roots")
_MAX_DISCOVERY_IDS = 1_000
GATHER_SECONDS = 1.0
"""Seconds for which presence events are collected, if no other envelope arrives."""


class TranscriptLine(NamedTuple):
    """The text of an envelope, the mark before it, and its style."""

    mark: str
    text: str
    style: str = ""


def _line(envelope: Envelope) -> TranscriptLine:
    label = kinds.kind_of(envelope.kind).label
    mark, style = label.mark, label.style
    if envelope.context:
        mark = f"│ {mark}".rstrip() if label.nested_bar else mark
        style = style if label.nested_style is None else label.nested_style
    if label.content == "result" and envelope.payload.get("error") is not None:
        style = "red"
    return TranscriptLine(mark, label.prefix + _RENDERERS[label.content](envelope), style)


def _severity(envelope: Envelope) -> str:
    severity = envelope.payload.get("severity")
    return f"{severity}: {text_of(envelope)}" if severity else text_of(envelope)


def _conclusion(envelope: Envelope) -> str:
    recommended = envelope.payload.get("recommendation")
    text = text_of(envelope)
    if isinstance(recommended, str) and recommended != text:
        text = f"{text}: {recommended}" if text else recommended
    return (text or "done") + _confidence_suffix(envelope)


def _call(envelope: Envelope) -> str:
    arguments = request_arguments(envelope)
    name = tool_of(envelope) or envelope.payload.get("method", "?")
    return f"{name} {_shorten(arguments)}" if arguments else f"{name}"


def _result(envelope: Envelope) -> str:
    error, result = envelope.payload.get("error"), envelope.payload.get("result")
    if error is not None:
        return _shorten(error)
    text = result_text(result)
    return _shorten(result if text is None else text)


def _reason(envelope: Envelope) -> str:
    reason = envelope.payload.get("reason")
    return f": {reason}" if isinstance(reason, str) and reason else ""


def _kind(envelope: Envelope) -> str:
    detail = text_of(envelope) or (_shorten(envelope.payload) if envelope.payload else "")
    return f"{envelope.kind} {detail}".rstrip()


_RENDERERS: dict[kinds.LabelContent, Callable[[Envelope], str]] = {
    "text": text_of,
    "opening": lambda envelope: text_of(envelope) or "…",
    "severity": _severity,
    "confidence": lambda envelope: text_of(envelope) + _confidence_suffix(envelope),
    "conclusion": _conclusion,
    "call": _call,
    "result": _result,
    "reason": _reason,
    "nothing": lambda envelope: "",
    "kind": _kind,
}


class Transcript:
    """Prints envelopes to stdout.

    Args:
        as_json: Print each envelope as one line of JSON, for programs.
        with_discovery: Whether requests that only ask what there is, and their responses, are printed. In JSON they
            always are.
    """

    def __init__(self, as_json: bool = False, with_discovery: bool = False) -> None:
        self._as_json = as_json
        self._with_discovery = with_discovery
        self._discovery_ids: dict[str, None] = {}
        """Ids of requests that were left out."""
        self._console = Console(highlight=False, soft_wrap=True, emoji=False)
        self._colours: dict[str, str] = {}
        self._presence_events: list[Envelope] = []
        """Presence events that have not been printed yet."""
        self._presence_timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Transcript:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush_presence()

    def show(self, envelope: Envelope, is_replay: bool = False) -> None:
        """Print one envelope.

        Args:
            envelope: The envelope.
            is_replay: Do not print it dim although it is replayed, because all envelopes are.
        """
        if self._as_json:
            click.echo(encode(envelope, DEFAULT_DIALECT))
            return
        if not self._with_discovery and self._is_discovery(envelope):
            return
        if envelope.kind == kinds.PRESENCE and not envelope.is_erased:
            self._presence_events.append(envelope)
            if self._presence_timer is None:
                self._presence_timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._flush_presence)
            return
        self._flush_presence()
        line = _line(envelope)
        if envelope.is_erased:
            line = TranscriptLine(line.mark, "(erased)", "dim italic")
        indent = "  " * (paths.depth(envelope.context) - (envelope.kind != kinds.START))
        to = f"  (to {', '.join(envelope.to)})" if envelope.to and envelope.family != "system" else ""
        name = "" if envelope.kind == kinds.WELCOME else envelope.sender
        prefix = f"{strip_controls(name):<12} {indent if envelope.context else ''}{line.mark:<1} "
        first, *rest = strip_controls(line.text + to).splitlines() or [""]
        shown = Text(prefix, style=self._colour(name))
        shown.append(first, style=line.style)
        bar = prefix[: len(prefix) - len(line.mark.strip() or " ") - 1] + ("│ " if line.mark[:1] in "╭│" else "  ")
        for text in rest:
            shown.append(f"\n{' ' * 12}{bar[12:]}", style=self._colour(name))
            shown.append(text, style=line.style)
        for flag in envelope.flags:
            shown.append(f"\n{' ' * 12}{bar[12:]}", style=self._colour(name))
            shown.append(f"⚑ {strip_controls(flag.message)}", style="yellow")
        if envelope.replayed and not is_replay:
            shown.stylize("dim")
        self._console.print(shown)

    def _is_discovery(self, envelope: Envelope) -> bool:
        """Check whether an envelope is a request that only asks what there is, or its response or its end."""
        if envelope.kind == kinds.REQUEST and is_discovery(envelope.payload.get("method")):
            self._discovery_ids[envelope.id] = None
            if len(self._discovery_ids) > _MAX_DISCOVERY_IDS:
                del self._discovery_ids[next(iter(self._discovery_ids))]
            return True
        is_about_one = not self._discovery_ids.keys().isdisjoint(envelope.correlation_id)
        if envelope.kind != kinds.RESPONSE:
            return is_about_one and envelope.payload.get("method") == CANCELLED
        # Of a response without its request, which came before the first envelope here, only a list is recognised.
        result = envelope.payload.get("result")
        is_list = isinstance(result, dict) and any(isinstance(result.get(name), list) for name in _LISTED)
        return is_list or is_about_one

    def print_notice(self, text: str) -> None:
        """Print a notice of the program itself. Nothing is printed if the output is JSON."""
        if not self._as_json:
            self._flush_presence()
            self._console.print(Text(strip_controls(text), style="dim italic"))

    def _flush_presence(self) -> None:
        if self._presence_timer is not None:
            self._presence_timer.cancel()
            self._presence_timer = None
        events, self._presence_events = self._presence_events, []
        for line in presence_lines(events):
            self._console.print(Text(f"{'':<14} {strip_controls(line)}", style="dim italic"))

    def _colour(self, name: str) -> str:
        if name not in self._colours:
            self._colours[name] = COLOURS[len(self._colours) % len(COLOURS)] if name else "dim"
        return self._colours[name]


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return (
        text
        if len(text) <= _MAX_SHOWN_CHARACTERS
        else f"{text[:_MAX_SHOWN_CHARACTERS]} … ({len(text) - _MAX_SHOWN_CHARACTERS} characters more)"
    )


def _confidence_suffix(envelope: Envelope) -> str:
    confidence = envelope.payload.get("confidence")
    return f"  ({confidence:g})" if isinstance(confidence, int | float) and not isinstance(confidence, bool) else ""
