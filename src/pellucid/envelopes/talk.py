"""How much agents may say to each other before a person joins in: turns, time and tokens, of a space and of a context.

    talk = Talk()
    error = talk.refusal(envelope, path, limits, people, time_ms)     # before an envelope is accepted
    talk.apply(envelope, path, people, time_ms)                       # every accepted envelope, in order

The rules:

1. Only what agents send counts. Where a space names its people, everyone else is an agent. Where it does not, a
   participant is an agent as soon as it has sent reasoning or a response, which people do not do.
2. A turn is an envelope to which others may react: a chat, a proposal, a request, an envelope of an unknown kind
   (`EnvelopeKind.talk`). So is everything else that has a text and ends nothing: a request that only asks what there is
   (`tools/list`), an acknowledgement, a status. A response is one unless it answers an open request; a conclusion or
   cancel, unless it ends a context that a start opened. Thoughts are turns only within their context. All of them count
   with their tokens, an estimate from their text; and the time runs from the first of them. The text is whatever a
   sender can write, also where names belong (`_texts`).
3. Requests that only ask what there is are free, so answers to those of agents are not always: an agent's first
   answer to a method is free, and so are repetitions of its last ones. Another answer is a turn. So tools are found at
   a limit, too, and lists of tools cannot carry a conversation.
4. Contexts count from the outermost one: what is nested in it counts for it, and so does what follows its end.
5. At a limit, more of these envelopes are refused: of a context, those in it; of the space, all. What ends something
   open, and is no turn, is never refused: a conclusion or cancel, an answer to a request, a withdrawal or rejection of
   a proposal. Agents' frames of streams are refused, too, and do not count.
6. A person's chat, proposal, request or thought renews the counts of the space, and those of its context.
   `space/renew` renews both everywhere, or those of its context alone.
7. A notice of the gateway (`system/limit`) says that a limit is reached, once.

The counts are the same under any limits. An erased envelope has no text when the log is read again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from ..errors import ErrorInfo
from ..parts import estimated_tokens
from . import context as paths
from . import kinds, mcp
from .envelope import GATEWAY, Envelope, refuse

TALK_LIMIT = "talk_limit"
"""The code of the error."""

LimitName: TypeAlias = Literal["turns", "seconds", "tokens"]
LIMIT_NAMES: tuple[LimitName, ...] = ("turns", "seconds", "tokens")

MAX_CONTEXTS = 1_000
MAX_AGENTS = 10_000
MAX_DISCOVERY_ANSWERS = 8
"""How many different answers of an agent to one method that only asks what there is are remembered."""

OPEN = "open"
"""What an envelope ends: something that is open, and no agent's request that only asks what there is."""


class TalkLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limits of a space, or of a context. None: no limit."""

    turns: int | None = None
    """Messages of agents in succession."""
    seconds: float | None = None
    """Time since a person took part."""
    tokens: int | None = None
    """Tokens that agents reported."""


class TalkCount(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What agents have said in a space or context since it was last renewed."""

    turns: int = 0
    tokens: int = 0
    since: int | None = None
    """When the first of it was accepted, in milliseconds since 1970."""
    notice: tuple[str, float] | None = None
    """The limit, with its number, that the last notice named."""

    def used(self, name: LimitName, time_ms: int) -> float:
        """Return how much of a limit is used."""
        if name == "seconds":
            return 0 if self.since is None else max(0, time_ms - self.since) / 1000
        return self.turns if name == "turns" else self.tokens


class TalkState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The whole state of a `Talk`."""

    space: TalkCount = msgspec.field(default_factory=TalkCount)
    contexts: dict[str, TalkCount] = {}
    """By the outermost context, the one that was used last at the end."""
    agents: dict[str, bool] = {}
    """Who has sent reasoning or a response."""
    discovery_answers: dict[str, dict[str, tuple[str, ...]]] = {}
    """By agent and method: digests of its answers to requests that only ask what there is, the latest at the end."""


class ReachedLimit(NamedTuple):
    """A limit that is reached."""

    name: LimitName
    allowed: float
    used: float
    context: str | None
    """The context. None: the space."""

    @property
    def message(self) -> str:
        """The limit in words, and how it is renewed."""
        unit = {"turns": "turns", "seconds": "s", "tokens": "tokens (estimated)"}[self.name]
        what = "this space" if self.context is None else f"context {self.context!r}"
        return (
            f"agents have used their {self.allowed:g} {unit} in {what}: a person's message renews them, or a "
            f"{kinds.RENEW}"
        )

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of the notice."""
        return {"limit": self.name, "allowed": self.allowed, "used": self.used, "message": self.message}


class Talk:
    """The counts of one space. `state` can be stored and passed in again."""

    def __init__(self, state: TalkState | None = None) -> None:
        self.state = state if state is not None else TalkState()

    def is_person(self, participant: str, people: Collection[str]) -> bool:
        """Check whether a participant is a person (rule 1)."""
        return participant in people if people else participant not in self.state.agents

    def reached(self, path: str | None, limits: TalkLimits, time_ms: int) -> ReachedLimit | None:
        """Return the limit that is reached, if any, of a context, or with None of the space."""
        count = self.state.space if path is None else self.state.contexts.get(paths.root(path))
        if count is None:
            return None
        for name in LIMIT_NAMES:
            allowed = getattr(limits, name)
            if allowed is not None and (used := count.used(name, time_ms)) >= allowed:
                return ReachedLimit(name, allowed, used, None if path is None else paths.root(path))
        return None

    def unannounced(self, path: str | None, limits: TalkLimits, time_ms: int) -> ReachedLimit | None:
        """Return the limit that is reached, if no notice has named it yet. Arguments are those of `reached`."""
        if (reached := self.reached(path, limits, time_ms)) is None:
            return None
        count = self.state.space if path is None else self.state.contexts[paths.root(path)]
        return None if count.notice == (reached.name, reached.allowed) else reached

    def refusal(
        self,
        envelope: Envelope,
        path: str | None,
        limits: tuple[TalkLimits, TalkLimits],
        people: Collection[str],
        time_ms: int,
        *,
        ends: str | None = None,
    ) -> ErrorInfo | None:
        """Return why an envelope is refused; None if it is not. Changes nothing.

        Args:
            envelope: The envelope.
            path: Its context.
            limits: The limits of the space, and of a context.
            people: The people of the space, if it names them.
            time_ms: The time, in milliseconds since 1970.
            ends: What it ends: `OPEN`, or the method of agents' requests that only ask what there is. None: nothing.
        """
        is_person = self.is_person(envelope.sender, people) and (bool(people) or not _is_of_an_agent(envelope))
        if is_person or self._talk_of(envelope, ends) is None:
            return None
        return self._limit_error(path, limits, time_ms)

    def frame_refusal(
        self,
        sender: str,
        path: str | None,
        limits: tuple[TalkLimits, TalkLimits],
        people: Collection[str],
        time_ms: int,
    ) -> ErrorInfo | None:
        """Return why a frame of a stream is refused; None if it is not. Arguments are as for `refusal`.

        Frames do not count, because they are not in the log.
        """
        return None if self.is_person(sender, people) else self._limit_error(path, limits, time_ms)

    def _limit_error(self, path: str | None, limits: tuple[TalkLimits, TalkLimits], time_ms: int) -> ErrorInfo | None:
        reached = self.reached(None, limits[0], time_ms)
        if reached is None and path is not None:
            reached = self.reached(path, limits[1], time_ms)
        if reached is None:
            return None
        param = None if reached.context is None else "context"
        return refuse(TALK_LIMIT, reached.message, param=param or "kind", kind="too_many_requests")

    def apply(
        self,
        envelope: Envelope,
        path: str | None,
        people: Collection[str],
        time_ms: int,
        *,
        ends: str | None = None,
    ) -> None:
        """Apply an accepted envelope.

        Args:
            envelope: The envelope.
            path: Its context; for a start, the one that it opens.
            people: The people of the space, if it names them.
            time_ms: When it was accepted, in milliseconds since 1970.
            ends: What it ends: `OPEN`, or the method of agents' requests that only ask what there is. None: nothing.
        """
        root = None if path is None else paths.root(path)
        if envelope.sender == GATEWAY:
            if envelope.kind == kinds.LIMIT:
                self._note(root, envelope.payload)
        elif envelope.kind == kinds.RENEW:
            self._renew(root, everywhere=root is None)
        else:
            self._count(envelope, root, people, time_ms, ends)

    def _count(
        self, envelope: Envelope, root: str | None, people: Collection[str], time_ms: int, ends: str | None
    ) -> None:
        state, talk = self.state, self._talk_of(envelope, ends)
        if _is_of_an_agent(envelope):
            _put(state.agents, envelope.sender, True, MAX_AGENTS)
        if ends is not None and ends != OPEN:
            answers, digest = state.discovery_answers.get(envelope.sender) or {}, _digest(envelope)
            others = (one for one in answers.get(ends, ()) if one != digest)
            answers[ends] = (*others, digest)[-MAX_DISCOVERY_ANSWERS:]
            _put(state.discovery_answers, envelope.sender, answers, MAX_AGENTS)
        if talk is None:
            return
        if self.is_person(envelope.sender, people):
            if kinds.kind_of(envelope.kind).talk in ("turn", "thought"):
                state.space = TalkCount()
                self._renew(root)
            return
        tokens = estimated_tokens(sum(map(len, _texts(envelope))))
        is_turn = talk == "turn"
        _add(state.space, tokens, is_turn, time_ms)
        if root is not None:
            count = state.contexts.get(root) or TalkCount()
            _put(state.contexts, root, count, MAX_CONTEXTS)
            _add(count, tokens, is_turn or kinds.kind_of(envelope.kind).act == "step", time_ms)

    def _talk_of(self, envelope: Envelope, ends: str | None) -> Literal["turn", "thought"] | None:
        """Return how an envelope counts (rules 2 and 3), if an agent sends it; None: not at all."""
        if ends is not None and ends != OPEN:
            earlier = self.state.discovery_answers.get(envelope.sender, {}).get(ends)
            return "turn" if earlier is not None and _digest(envelope) not in earlier else None
        talk = "text" if _has_known_method(envelope) else kinds.kind_of(envelope.kind).talk
        if talk == "text":
            return "turn" if _texts(envelope) else None
        if talk == "end":
            return "turn" if ends is None else None
        return talk

    def _renew(self, root: str | None, *, everywhere: bool = False) -> None:
        if everywhere:
            self.state.space = TalkCount()
            self.state.contexts.clear()
        elif root is not None:
            self.state.contexts.pop(root, None)

    def _note(self, root: str | None, payload: dict[str, Any]) -> None:
        count = self.state.space if root is None else self.state.contexts.get(root)
        name, allowed = payload.get("limit"), payload.get("allowed")
        if count is not None and isinstance(name, str) and isinstance(allowed, int | float):
            count.notice = (name, allowed)


_V = TypeVar("_V")


def _put(table: dict[str, _V], key: str, value: _V, maximum: int) -> None:
    """Put an entry at the end; remove the first one if there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > maximum:
        del table[next(iter(table))]


def _add(count: TalkCount, tokens: int, is_turn: bool, time_ms: int) -> None:
    count.turns += is_turn
    count.tokens += tokens
    if count.since is None:
        count.since = time_ms


def _is_of_an_agent(envelope: Envelope) -> bool:
    """Check whether an envelope makes its sender an agent, where the space does not name its people (rule 1)."""
    return envelope.kind == kinds.RESPONSE or kinds.kind_of(envelope.kind).act in ("start", "step", "conclusion")


def _has_known_method(envelope: Envelope) -> bool:
    """Check whether an envelope is a request whose method says nothing of its own."""
    method = envelope.payload.get("method")
    return envelope.kind == kinds.REQUEST and (mcp.is_discovery(method) or method == mcp.CANCELLED)


_NAME = re.compile(r"[A-Za-z0-9_.:/@+~=-]{0,64}")


def _texts(envelope: Envelope) -> list[str]:
    """Return everything that an envelope says, in its payload and in unknown fields.

    Ids, names of fields and the fields of JSON-RPC itself say something if they do not look like names.
    """
    ids, names, values = _content(envelope)
    texts = [value for value in values if isinstance(value, str) and value]
    return texts + [name for name in (*ids, *names) if _NAME.fullmatch(name) is None]


def _digest(envelope: Envelope) -> str:
    """Return a short hash of everything in an envelope but its ids, in any order."""
    ids, names, values = _content(envelope)
    content = sorted([*names, *map(repr, values), *(id for id in ids if _NAME.fullmatch(id) is None)])
    return hashlib.blake2b("\0".join(content).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _content(envelope: Envelope) -> tuple[list[str], list[str], list[Any]]:
    """Return what an envelope holds: ids and fields of JSON-RPC, names of fields, and other values."""
    ids, names, scalars = [envelope.id, *envelope.correlation_id], list[str](), list[Any]()
    payload = dict(envelope.payload)
    if _has_known_method(envelope):
        del payload["method"]
    for field in kinds.kind_of(envelope.kind).unsearched_fields:
        id = payload.get(field)
        if isinstance(id, str):
            ids.append(id)
        if not isinstance(id, dict | list):
            payload.pop(field, None)
    values: list[Any] = [payload, envelope.extra, envelope.context_operation]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            names += value
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value
        else:
            scalars.append(value)
    return ids, names, scalars
