"""Requests: who may answer an MCP request, and how often.

    requests = Requests()
    errors = requests.check(envelope, sees)    # the rules that an envelope breaks
    requests.apply(envelope)                   # every accepted envelope, in order

The rules:

1. A request that names its recipients is answered by them alone, each once.
2. A call of a tool without recipients is answered once, by a participant who offers the tool. Who has listed tools (a
   response to another participant's `tools/list`) offers them. A list counts for those who could read it; for the calls
   of others it counts only if no list that they could read has the tool. While no participant has listed the tool,
   anyone may answer.
3. Any other request without recipients is answered by anyone, each once: so tools are discovered.
4. Everything else answers no request that is remembered: its requester does not wait any more, or it was never sent, or
   it is a notification, which has no answer. A request that the sender may not read is one of these.

The space refuses a response that breaks a rule, or flags it (`responses` in its settings). A refused envelope
changes nothing, so `replay` of the accepted ones gives the state again.

Only the latest requests and tools are remembered. Those that have all their answers are separate, so they never take
the place of others. Of the others, the participant with the most loses its oldest: so none can displace another's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import ErrorInfo
from ..unicode import truncate
from . import kinds
from .envelope import Envelope, Sees, readers_of, refuse, sees_as
from .mcp import LIST_TOOLS, is_discovery, is_notification, tool_of

MAX_NAME = 255
"""How many characters of a tool's name are remembered."""
MAX_LIST_READERS = 64
"""How many of the participants who could read that a tool is offered are remembered, for each offer."""

UNKNOWN_REQUEST, NOT_ADDRESSED, NOT_OFFERED, ANSWERED = (
    "unknown_request",
    "not_addressed",
    "tool_not_offered",
    "already_answered",
)
"""The codes of errors and flags."""

_UNTRUSTED = frozenset({UNKNOWN_REQUEST, NOT_ADDRESSED, NOT_OFFERED, ANSWERED})


def is_trusted_response(envelope: Envelope) -> bool:
    """Return whether an envelope is a response that its requester may take for the answer: no flag says otherwise."""
    return envelope.kind == kinds.RESPONSE and not any(flag.code in _UNTRUSTED for flag in envelope.flags)


class Request(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request, and who has answered it."""

    by: str = ""
    """Who sent it. Empty: not known, in states of older versions."""
    to: tuple[str, ...] = ()
    tool: str | None = None
    """The tool that it calls."""
    lists_tools: bool = False
    discovery: str = ""
    """Its method, if it only asks what there is."""
    answered_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.lists_tools and not self.discovery:  # in states of older versions
            self.discovery = LIST_TOOLS

    @property
    def readers(self) -> tuple[str, ...]:
        """Who may read it. Empty: everyone, or not known."""
        return readers_of(self.by, self.to) if self.by else ()

    @property
    def is_answered(self) -> bool:
        """Whether no further answer is accepted."""
        if self.to:
            return all(one in self.answered_by for one in self.to if one != self.by)
        return self.tool is not None and bool(self.answered_by)


class RequestState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The whole state of `Requests`. Each table is in the order of time, the oldest first."""

    requests: dict[str, Request] = {}
    """Those that may still be answered."""
    answered: dict[str, Request] = {}
    """Those that have all their answers."""
    offers: dict[str, dict[str, tuple[str, ...]]] = {}
    """Who offers a tool, by its name; with the participants who could read that. Empty: everyone."""
    tools: dict[str, tuple[str, ...]] = {}
    """Who offers a tool, as older versions stored it."""

    def __post_init__(self) -> None:
        for name, participants in self.tools.items():
            self.offers.setdefault(name, dict.fromkeys(participants, ()))
        self.tools = {}


class Requests:
    """The requests of one space. `state` can be stored and passed in again."""

    def __init__(self, state: RequestState | None = None, *, max_requests: int = 500, max_tools: int = 1_000) -> None:
        self.state = state if state is not None else RequestState()
        self._max_requests = max_requests
        self._max_tools = max_tools
        self._counts = Counter(one.by for one in self.state.requests.values())
        """How many requests each participant has in `state.requests`."""

    def get(self, id: str) -> Request | None:
        """Return the request with this id, if it is remembered."""
        return self.state.requests.get(id) or self.state.answered.get(id)

    def check(self, envelope: Envelope, sees: Sees | None = None) -> list[ErrorInfo]:
        """Return the violations of the rules by an envelope. Changes nothing.

        Args:
            envelope: The envelope.
            sees: What its sender may read. None: what is for it and for everyone.
        """
        if envelope.kind != kinds.RESPONSE:
            return []
        sees = sees or sees_as(envelope.sender)
        known = [(id, one) for id in envelope.correlation_id if (one := self.get(id)) is not None]
        errors = [_unknown()] if not known else []
        errors += [error for id, one in known if (error := self._error(envelope.sender, id, one, sees)) is not None]
        return errors

    def awaited_requests(self, envelope: Envelope) -> list[Request]:
        """Return the unanswered requests that an envelope is a response to, and that its sender may answer."""
        if envelope.kind != kinds.RESPONSE:
            return []
        sees, named = sees_as(envelope.sender), envelope.correlation_id
        known = [(id, request) for id in named if (request := self.state.requests.get(id)) is not None]
        return [one for id, one in known if self._error(envelope.sender, id, one, sees) is None]

    def refused_answers(self, envelope: Envelope) -> frozenset[str]:
        """Return the requests that a response names and that its sender may not answer, or has answered before."""
        if envelope.kind != kinds.RESPONSE:
            return frozenset()
        sees, named = sees_as(envelope.sender), envelope.correlation_id
        known = [(id, request) for id in named if (request := self.get(id)) is not None]
        return frozenset(id for id, one in known if self._error(envelope.sender, id, one, sees) is not None)

    def _error(self, sender: str, id: str, request: Request, sees: Sees) -> ErrorInfo | None:
        name = truncate(id)
        if not sees(request.readers):
            return _unknown()
        if request.to:
            if sender not in request.to:
                return refuse(
                    NOT_ADDRESSED,
                    f"request {name!r} is addressed to others; only its recipients answer it",
                    kind="forbidden",
                    param="correlation_id",
                )
        elif request.tool is not None:
            offered_by = self._offered_by(request.tool, request.by)
            if offered_by and sender not in offered_by:
                return refuse(
                    NOT_OFFERED,
                    f"request {name!r} calls a tool that {sender!r} has not listed; list it first, in an answer to "
                    f"{LIST_TOOLS}",
                    kind="forbidden",
                    param="correlation_id",
                )
            if request.answered_by:
                return refuse(ANSWERED, f"request {name!r} has its answer", param="correlation_id")
        if sender in request.answered_by:
            return refuse(ANSWERED, f"{sender!r} has answered request {name!r} before", param="correlation_id")
        return None

    def _offered_by(self, tool: str, requester: str) -> list[str]:
        """Return who offers a tool to a requester (rule 2)."""
        offers, sees = self.state.offers.get(tool, {}), sees_as(requester)
        return [one for one, readers in offers.items() if sees(readers)] or list(offers)

    def apply(self, envelope: Envelope) -> None:
        """Apply an accepted envelope."""
        if envelope.kind == kinds.REQUEST and not is_notification(envelope):
            self._remember(envelope)
        elif envelope.kind == kinds.RESPONSE:
            sees = sees_as(envelope.sender)
            for id in envelope.correlation_id:
                request = self.get(id)
                if request is None or self._error(envelope.sender, id, request, sees) is not None:
                    continue
                request.answered_by = (*request.answered_by, envelope.sender)
                if request.is_answered and self._remove(id):
                    self.state.answered[id] = request
                    _drop_oldest(self.state.answered, self._max_requests)
                # One's own list, which others need not know of, offers nothing to them.
                if request.lists_tools and envelope.sender != request.by:
                    self._list(envelope)
        elif envelope.kind == kinds.KICK:
            self._forget_participant(envelope.payload.get("participant_id"))

    def _remember(self, envelope: Envelope) -> None:
        tool, method, requests = tool_of(envelope), envelope.payload.get("method"), self.state.requests
        self._remove(envelope.id)
        self.state.answered.pop(envelope.id, None)
        requests[envelope.id] = Request(
            by=envelope.sender,
            to=envelope.recipients,
            tool=tool[:MAX_NAME] if tool is not None else None,
            lists_tools=method == LIST_TOOLS,
            discovery=method if is_discovery(method) else "",
        )
        self._counts[envelope.sender] += 1
        if len(requests) > self._max_requests:
            most = participant_with_most(self._counts)
            self._remove(next(id for id, one in requests.items() if one.by == most))

    def _remove(self, id: str) -> bool:
        request = self.state.requests.pop(id, None)
        if request is None:
            return False
        self._counts[request.by] -= 1
        if not self._counts[request.by]:
            del self._counts[request.by]
        return True

    def _list(self, envelope: Envelope) -> None:
        """Remember who offers the tools of a result of `tools/list`, and who could read that."""
        result = envelope.payload.get("result")
        listed = result.get("tools") if isinstance(result, dict) else None
        readers = envelope.readers
        for tool in (listed if isinstance(listed, list) else ())[: self._max_tools]:
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            name = name[:MAX_NAME]
            offers = self.state.offers.pop(name, {})
            earlier = offers.get(envelope.sender, readers)
            offers[envelope.sender] = (
                tuple(dict.fromkeys((*earlier, *readers)))[-MAX_LIST_READERS:] if earlier and readers else ()
            )
            self.state.offers[name] = offers
            _drop_oldest(self.state.offers, self._max_tools)

    def _forget_participant(self, participant: Any) -> None:
        for name, offers in list(self.state.offers.items()):
            if isinstance(participant, str) and offers.pop(participant, None) is not None and not offers:
                del self.state.offers[name]


def participant_with_most(counts: Mapping[str, int]) -> str:
    """Return the participant who has the most in a table that is full, and loses the oldest. All replicas agree."""
    return max(counts, key=lambda one: (counts[one], one))


def _drop_oldest(table: dict[str, Any], maximum: int) -> None:
    if len(table) > maximum:
        del table[next(iter(table))]


def _unknown() -> ErrorInfo:
    return refuse(
        UNKNOWN_REQUEST,
        "it answers no request that this space remembers; `correlation_id` is the id of the request",
        kind="not_found",
        param="correlation_id",
    )
