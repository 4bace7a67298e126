"""Proposals: a participant proposes an action, and a participant who may do it fulfils or rejects it.

    proposals = Proposals()
    error = proposals.refusal(envelope, sees)             # why an envelope is refused, or None
    flags, changed = proposals.apply(envelope, sees)      # every accepted envelope, in order

The rules:

1. A proposal is open until it is fulfilled, rejected or withdrawn. That status is final.
2. A request that correlates to it fulfils it, once. So nothing is done twice, or after it was called off. Capabilities
   decide who may send the request. A request whose method or tool differs from the proposal is flagged.
3. Only its proposer withdraws it. Any other recipient may reject it. The first decision holds.
4. A withdrawal and a rejection name their proposal in `correlation_id`; it must exist. For a participant who may not
   read a proposal it does not exist, and a request of that participant does not fulfil it.
5. The first response to the fulfilling request is its outcome, if its sender may answer the request.
6. A proposer may reuse an id, because some clients count ids from the start in every process. The new proposal replaces
   the old one. An id of another participant's open proposal cannot be used.

A refused envelope changes nothing, so `replay` of the accepted ones gives the state again. Only the latest proposals
are remembered: open ones longest, and of those the participant with the most loses its oldest. An open one that was
dropped can still be done, but not rejected or withdrawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Literal, TypeAlias

import msgspec

from ..errors import ErrorInfo
from . import kinds
from .envelope import Envelope, Flag, Sees, readers_of, refuse, sees_as
from .mcp import tool_of
from .requests import participant_with_most

ProposalStatus: TypeAlias = Literal["open", "fulfilled", "rejected", "withdrawn"]

MAX_NAME = 255
"""How many characters of a method's or tool's name are remembered."""


class Proposal(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One proposal and its status."""

    id: str
    proposer: str
    to: tuple[str, ...] = ()
    method: str | None = None
    tool: str | None = None
    context: str | None = None
    status: ProposalStatus = "open"
    by: str | None = None
    """Who fulfilled, rejected or withdrew it."""
    settled_by: str | None = None
    """Id of the envelope that did."""
    response: str | None = None
    """Id of the response to the request that fulfilled it."""
    failed: bool = False
    """Whether that response is an error."""

    @property
    def readers(self) -> tuple[str, ...]:
        """Who may read it. Empty: everyone."""
        return readers_of(self.proposer, self.to)


class Proposals:
    """The proposals of one space. `state` can be stored and passed in again."""

    def __init__(self, state: dict[str, Proposal] | None = None, *, max_remembered: int = 2_000) -> None:
        self.state = state if state is not None else {}
        self.max_remembered = max_remembered
        self._fulfilled_by: dict[str, set[str]] = {}
        """Ids of proposals by the id of the request. Ids may repeat, and one request may fulfil several proposals."""
        for one in self.state.values():
            if one.status == "fulfilled" and one.settled_by is not None:
                self._fulfilled_by.setdefault(one.settled_by, set()).add(one.id)

    def apply(
        self, envelope: Envelope, sees: Sees | None = None, refused_answers: Container[str] = ()
    ) -> tuple[tuple[Flag, ...], tuple[str, ...]]:
        """Apply an accepted envelope. Most envelopes have no effect.

        Args:
            envelope: The envelope.
            sees: What its sender may read. None: what is for it and for everyone.
            refused_answers: The requests that it names and does not answer (`Requests.refused_answers`).

        Returns:
            Remarks about it, and the ids of the proposals that changed.
        """
        named = self._named_proposals(envelope, sees)
        flags = tuple(
            Flag("differs", f"it requests something else than {one.id!r} proposed")
            for one in named
            if envelope.kind == kinds.REQUEST and (one.method, one.tool) != _method_and_tool(envelope)
        )
        return flags, self.replay(envelope, {one.id for one in named}, refused_answers)

    def replay(
        self, envelope: Envelope, changed: Container[str] = (), refused_answers: Container[str] = ()
    ) -> tuple[str, ...]:
        """Apply an envelope that was accepted before.

        Args:
            envelope: The envelope.
            changed: Ids of the proposals that it changed. They are needed for those that its sender could read by a
                right, or because addresses are advisory.
            refused_answers: As for `apply`.

        Returns:
            Ids of the proposals that changed.
        """
        if envelope.kind == kinds.PROPOSAL:
            return self._propose(envelope)
        if envelope.kind == kinds.RESPONSE:
            return self._respond(envelope, refused_answers)
        status = kinds.kind_of(envelope.kind).proposal_status
        if status is None or not envelope.correlation_id:
            return ()
        sees = sees_as(envelope.sender)
        proposals = [
            one
            for name in envelope.correlation_id
            if (one := self.state.get(name)) is not None
            and one.status == "open"
            and (sees(one.readers) or one.id in changed)
        ]
        for one in proposals:
            one.status, one.by, one.settled_by = status, envelope.sender, envelope.id
            if status == "fulfilled":
                self._fulfilled_by.setdefault(envelope.id, set()).add(one.id)
        return tuple(one.id for one in proposals)

    def _named_proposals(self, envelope: Envelope, sees: Sees | None) -> list[Proposal]:
        """Return the proposals to which the envelope correlates, of those that its sender may read."""
        sees = sees or sees_as(envelope.sender)
        return [
            one for name in envelope.correlation_id if (one := self.state.get(name)) is not None and sees(one.readers)
        ]

    def refusal(self, envelope: Envelope, sees: Sees | None = None) -> ErrorInfo | None:
        """Return why an envelope is refused; None if it is not. Changes nothing. Arguments are those of `apply`."""
        if envelope.kind == kinds.PROPOSAL:
            earlier = self.state.get(envelope.id)
            if earlier is None or earlier.status != "open" or earlier.proposer == envelope.sender:
                return None
            return refuse("id_conflict", f"id {envelope.id!r} is another participant's open proposal", param="id")
        if kinds.kind_of(envelope.kind).proposal_status is None:
            return None
        proposals = self._named_proposals(envelope, sees)
        if not proposals and envelope.kind != kinds.REQUEST:
            return refuse(
                "proposal_unknown",
                f"a {envelope.kind} needs the id of an open proposal in `correlation_id`, and "
                + (
                    f"there is none called {', '.join(map(repr, envelope.correlation_id[:8]))}"
                    if envelope.correlation_id
                    else "it has none"
                ),
                kind="not_found",
                param="correlation_id",
            )
        for one in proposals:
            if one.status != "open":
                return refuse(
                    "proposal_settled",
                    f"proposal {one.id!r} was {one.status} by {one.by!r}: to have it done after all, propose it again",
                    param="correlation_id",
                )
            if envelope.kind == kinds.WITHDRAW and envelope.sender != one.proposer:
                return refuse(
                    "not_proposer",
                    f"only {one.proposer!r} can withdraw proposal {one.id!r}; to disagree, send {kinds.REJECT}",
                    kind="forbidden",
                    param="correlation_id",
                )
            if envelope.kind == kinds.REJECT and envelope.sender == one.proposer:
                return refuse(
                    "own_proposal",
                    f"proposal {one.id!r} is your own; its proposer sends {kinds.WITHDRAW}",
                    kind="forbidden",
                    param="correlation_id",
                )
            if envelope.kind == kinds.REJECT and one.to and envelope.sender not in one.to:
                return refuse(
                    "not_addressed",
                    f"proposal {one.id!r} is addressed to {', '.join(map(repr, one.to[:8]))}; only they may reject it",
                    kind="forbidden",
                    param="correlation_id",
                )
        return None

    def _propose(self, envelope: Envelope) -> tuple[str, ...]:
        method, tool = _method_and_tool(envelope)
        self._forget(envelope.id)
        self.state[envelope.id] = Proposal(
            id=envelope.id,
            proposer=envelope.sender,
            to=envelope.recipients,
            method=method,
            tool=tool,
            context=envelope.context,
        )
        if len(self.state) > self.max_remembered:
            settled = next((one.id for one in self.state.values() if one.status != "open"), None)
            most = participant_with_most(Counter(one.proposer for one in self.state.values())) if not settled else None
            self._forget(settled or next(one.id for one in self.state.values() if one.proposer == most))
        return (envelope.id,)

    def _respond(self, envelope: Envelope, refused_answers: Container[str]) -> tuple[str, ...]:
        changed: list[str] = []
        for name in envelope.correlation_id:
            if name in refused_answers:
                continue
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
