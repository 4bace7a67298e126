"""Generated conversations about reasoning, with few names so that they collide; and single envelopes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from pellucid.envelopes import Defaults, Envelope, Flag, read
from pellucid.envelopes.lifecycle import Lifecycle, LifecycleSettings
from pellucid.envelopes.reasoning import NO_NAMES, LifecycleEffect, NameSet
from pellucid.errors import ErrorInfo
from tests.envelopes.seed_flows import FLOWS

_fresh = itertools.count()

KINDS = {
    "start": "reasoning/start",
    "thought": "reasoning/thought",
    "question": "reasoning/question",
    "conclusion": "reasoning/conclusion",
    "cancel": "reasoning/cancel",
    "share": "reasoning/share",
    "chat": "chat",
    "request": "mcp/request",
    "response": "mcp/response",
    "proposal": "mcp/proposal",
    "reject": "mcp/reject",
    "withdraw": "mcp/withdraw",
}


def envelope_of(
    kind: str,
    context: str | None = None,
    *,
    by: str = "agent",
    id: str | None = None,
    about: str | Iterable[str] = (),
    to: Iterable[str] = (),
    ts: int = 0,
    **payload: Any,
) -> Envelope:
    """Make an envelope, for example `envelope_of("thought", "m1", by="a")`."""
    return Envelope(
        id=id or f"id-{next(_fresh)}",
        ts=ts,
        sender=by,
        to=tuple(to),
        kind=KINDS.get(kind, kind),
        correlation_id=(about,) if isinstance(about, str) else tuple(about),
        context=context,
        payload=payload,
    )


class LifecycleVerdict(LifecycleEffect, frozen=True, kw_only=True):
    """What a life cycle says of one envelope: its effect and its flags, or why it is refused."""

    error: ErrorInfo | None = None
    flags: tuple[Flag, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.error is None


class CheckedLifecycle(Lifecycle):
    """A life cycle that checks envelopes and applies the accepted ones, as a space does."""

    def feed(self, envelope: Envelope, *, time_ms: int | None = None, known: NameSet = NO_NAMES) -> LifecycleVerdict:
        checked = self.check(envelope, known)
        if isinstance(checked, ErrorInfo):
            return LifecycleVerdict(error=checked)
        effect = self.apply(envelope, checked.case, envelope.ts if time_ms is None else time_ms)
        return LifecycleVerdict(**structs.asdict(effect), flags=checked.flags)


def feed_all(life: CheckedLifecycle, *envelopes: Envelope) -> list[LifecycleVerdict]:
    return [life.feed(envelope) for envelope in envelopes]


def life(**settings: Any) -> CheckedLifecycle:
    return CheckedLifecycle(LifecycleSettings(**settings))


def code(verdict: LifecycleVerdict) -> str | None:
    return None if verdict.error is None else verdict.error.code


def flags(verdict: LifecycleVerdict) -> set[str]:
    return {flag.code for flag in verdict.flags}


def seed_flow(name: str) -> list[Envelope]:
    """A flow of the seed, as the gateway reads it."""
    return [
        read(text.encode(), None, Defaults(sender=_sender_of(text), id=f"{name}-{number}", ts=number))
        for number, text in enumerate(FLOWS[name])
    ]


def _sender_of(text: str) -> str:
    return str(json.loads(text).get("from", "agent"))


IDS = [f"m{number}" for number in range(6)]
SENDERS = ["a", "b", "c"]
PATHS = [*IDS[:4], "label", "m0/m1", "m0/m1/m2", "label/m1", "m1/m0", "label/sub", "m0/x/y/z/w", "m1/m2/m3/m4/m5"]


def conversations(max_size: int = 30, senders: list[str] = SENDERS) -> st.SearchStrategy[list[Envelope]]:
    """Any sequence of envelopes with few names; most of them break some rule."""
    return st.lists(_envelopes(senders), max_size=max_size).map(_number)


def _envelopes(senders: list[str]) -> st.SearchStrategy[Envelope]:
    name = st.sampled_from([*IDS, "label"])
    return st.builds(
        envelope_of,
        st.sampled_from(sorted(KINDS)),
        st.none() | st.sampled_from(PATHS),
        by=st.sampled_from([*senders, "system:gateway"]),
        id=st.sampled_from([*IDS, "m6", "m7", "m8", "m9"]),
        about=st.lists(name, max_size=2, unique=True),
        to=st.lists(st.sampled_from(senders), max_size=2, unique=True),
        references=st.lists(name, max_size=2),
    )


def _number(envelopes: list[Envelope]) -> list[Envelope]:
    return [replace(envelope, ts=number * 1000, seq=number + 1) for number, envelope in enumerate(envelopes)]
