"""Proposals: somebody says what should be done, and somebody who may do it does, or says no.

    proposals = Proposals()
    verdict = proposals.feed(envelope)        # of every envelope that was accepted otherwise, in order

The rules:

1. A proposal is open until it is fulfilled, rejected or withdrawn, which it then stays.
2. A request that correlates to it fulfils it, once: nothing is done twice, and nothing after it was called off. Who may
   send the request is the capabilities' matter. A request that asks for something else than was proposed is flagged.
3. Its proposer, alone, withdraws it. Anybody else whom it was addressed to rejects it, and the first word holds.
4. A withdrawal and a rejection name what they are about (`correlation_id`); there must be such a proposal.
5. The response to the fulfilling request is its outcome.
6. A proposer may use an id again, as clients do that count anew in every process; that takes the place of the older
   one. Nobody may use the id of another's open proposal.

What is refused changes nothing, so that `replay` of what was accepted gives the state again. Only the last are
remembered; an open one that is forgotten can be done, but no more be rejected or withdrawn.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ..errors import ErrorInfo, ErrorKind
from . import kinds
from .envelope import Envelope, Flag
from .mcp import tool_of

ProposalStatus: TypeAlias = Literal["open", "fulfilled", "rejected", "withdrawn"]

MAX_NAME = 255
"""How much of a method's or tool's name is remembered."""


class Proposal(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    proposer: str
    to: tuple[str, ...] = ()
    method: str | None = None
    tool: str | None = None
    context: str | None = None
    status: ProposalStatus = "open"
    by: str | None = None
    """Who settled it."""
    settled_by: str | None = None
    """The id of what settled it."""
    response: str | None = None
    """The id of the response to what fulfilled it."""
    failed: bool = False
    """Whether that response is an error."""


class ProposalVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    error: ErrorInfo | None = None
    flags: tuple[Flag, ...] = ()
    changed: tuple[str, ...] = ()
    """The ids of the proposals that are no longer what they were."""

    @property
    def accepted(self) -> bool:
        return self.error is None


class Proposals:
    """The proposals of one space. `state` can be kept and handed in again."""

    def __init__(self, state: dict[str, Proposal] | None = None, *, max_remembered: int = 2_000) -> None:
        self.state = state if state is not None else {}
        self.max_remembered = max_remembered
        self._fulfilled_by: dict[str, set[str]] = {}
        """By the request's id: ids are counted anew, and one request may do what several proposed."""
        for one in self.state.values():
            if one.status == "fulfilled" and one.settled_by is not None:
                self._fulfilled_by.setdefault(one.settled_by, set()).add(one.id)

    def feed(self, envelope: Envelope) -> ProposalVerdict:
        """What becomes of the next envelope; of most, nothing."""
        if (error := self.refusal(envelope)) is not None:
            return ProposalVerdict(error=error)
        flags = tuple(
            Flag("differs", f"it asks for something else than what {one.id!r} proposed")
            for one in self._named_proposals(envelope)
            if envelope.kind == kinds.REQUEST and (one.method, one.tool) != _method_and_tool(envelope)
        )
        return ProposalVerdict(flags=flags, changed=self.replay(envelope))

    def replay(self, envelope: Envelope) -> tuple[str, ...]:
        """What an envelope that was accepted did."""
        if envelope.kind == kinds.PROPOSAL:
            return self._propose(envelope)
        if envelope.kind == kinds.RESPONSE:
            return self._respond(envelope)
        status = kinds.kind_of(envelope.kind).proposal_status
        if status is None:
            return ()
        proposals = [one for one in self._named_proposals(envelope) if one.status == "open"]
        for one in proposals:
            one.status, one.by, one.settled_by = status, envelope.sender, envelope.id
            if status == "fulfilled":
                self._fulfilled_by.setdefault(envelope.id, set()).add(one.id)
        return tuple(one.id for one in proposals)

    def open(self) -> tuple[Proposal, ...]:
        """Those that nobody settled, the oldest first."""
        return tuple(one for one in self.state.values() if one.status == "open")

    def _named_proposals(self, envelope: Envelope) -> list[Proposal]:
        return [one for name in envelope.correlation_id if (one := self.state.get(name)) is not None]

    def refusal(self, envelope: Envelope) -> ErrorInfo | None:
        """Why `feed` would refuse it. It changes nothing."""
        if envelope.kind == kinds.PROPOSAL:
            earlier = self.state.get(envelope.id)
            if earlier is None or earlier.status != "open" or earlier.proposer == envelope.sender:
                return None
            return _refusal("id_conflict", f"id {envelope.id!r} is an open proposal of {earlier.proposer!r}", "id")
        if kinds.kind_of(envelope.kind).proposal_status is None:
            return None
        proposals = self._named_proposals(envelope)
        if not proposals and envelope.kind != kinds.REQUEST:
            return _refusal(
                "proposal_unknown",
                f"a {envelope.kind} names an open proposal in `correlation_id`, and there is none "
                + (
                    f"called {', '.join(map(repr, envelope.correlation_id[:8]))}"
                    if envelope.correlation_id
                    else "there"
                ),
                kind="not_found",
            )
        for one in proposals:
            if one.status != "open":
                return _refusal(
                    "proposal_settled",
                    f"proposal {one.id!r} was {one.status} by {one.by!r}: to have it done after all, propose it anew",
                )
            if envelope.kind == kinds.WITHDRAW and envelope.sender != one.proposer:
                return _refusal(
                    "not_proposer",
                    f"proposal {one.id!r} is {one.proposer!r}'s to withdraw; who disagrees sends {kinds.REJECT}",
                    kind="forbidden",
                )
            if envelope.kind == kinds.REJECT and envelope.sender == one.proposer:
                return _refusal(
                    "own_proposal",
                    f"proposal {one.id!r} is your own; its proposer sends {kinds.WITHDRAW}",
                    kind="forbidden",
                )
            if envelope.kind == kinds.REJECT and one.to and envelope.sender not in one.to:
                return _refusal(
                    "not_addressed",
                    f"proposal {one.id!r} is for {', '.join(map(repr, one.to[:8]))}, who may reject it",
                    kind="forbidden",
                )
        return None

    def _propose(self, envelope: Envelope) -> tuple[str, ...]:
        method, tool = _method_and_tool(envelope)
        self._forget(envelope.id)
        self.state[envelope.id] = Proposal(
            id=envelope.id,
            proposer=envelope.sender,
            to=envelope.to,
            method=method,
            tool=tool,
            context=envelope.context,
        )
        if len(self.state) > self.max_remembered:
            self._forget(next((one.id for one in self.state.values() if one.status != "open"), next(iter(self.state))))
        return (envelope.id,)

    def _respond(self, envelope: Envelope) -> tuple[str, ...]:
        changed: list[str] = []
        for name in envelope.correlation_id:
            for id in sorted(self._fulfilled_by.get(name, ())):
                one = self.state[id]
                if one.response is None:
                    one.response, one.failed = envelope.id, envelope.payload.get("error") is not None
                    changed.append(one.id)
        return tuple(changed)

    def _forget(self, name: str) -> None:
        old = self.state.pop(name, None)
        if old is None or old.settled_by is None:
            return
        ids = self._fulfilled_by.get(old.settled_by, set())
        ids.discard(name)
        if not ids:
            self._fulfilled_by.pop(old.settled_by, None)


def _method_and_tool(envelope: Envelope) -> tuple[str | None, str | None]:
    method = envelope.payload.get("method")
    tool = tool_of(envelope)
    return (method[:MAX_NAME] if isinstance(method, str) else None), (tool[:MAX_NAME] if tool else None)


def _refusal(code: str, message: str, param: str = "correlation_id", kind: ErrorKind = "invalid_request") -> ErrorInfo:
    return ErrorInfo(kind=kind, code=code, message=message, param=param)
