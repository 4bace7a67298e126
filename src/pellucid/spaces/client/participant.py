"""Somebody in a space, from outside: `async with Participant(url, token=…) as me`.

    async with Participant("ws://host:8000/spaces/review/ws", token=token) as me:
        question = await me.say("Should we deploy this?")
        async for envelope in me:
            …

The rules:

* What `send` gave back is stored: its echo was heard. What was not echoed before a connection broke is sent again with
  its id, and a space takes an envelope once.
* `async for` gives every envelope that this participant is shown, in the space's order, once, its own too. Those that
  were said before it came are `replayed`: to be looked at, never to be acted on.
* Whoever does not read gets what it left out of the history later: nothing grows without bound, and nothing is lost.
* A connection that breaks is made again, from where it broke, within `patience` seconds. Where it will not be (a token
  that is refused, a participant who was put out), everything that waits raises `SpaceClosed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from ...envelopes import kinds
from ...envelopes.capability import Held, decide, read_capability
from ...envelopes.envelope import Envelope
from ...envelopes.payloads import Present
from ...envelopes.shown import SpaceView, space_view
from ...errors import RequestError
from .address import address
from .inbox import Inbox
from .link import Link
from .refusals import CallFailed
from .remote import SpaceReader

if TYPE_CHECKING:
    from .thinking import Thinking

Answers = str | Envelope | Sequence[str | Envelope]
"""What an envelope is about: envelopes, or their ids."""

To = str | Sequence[str]


class Participant:
    """One participant. Used as `async with`, in one event loop."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        space: str | None = None,
        view: SpaceView = "full",
        after_seq: int | None = None,
        history: int = 0,
        patience: float = 300.0,
        max_frame: int = 64 * 1024 * 1024,
    ) -> None:
        """`url`: the space's, or the gateway's with `space` beside it. `after_seq`: the last envelope that is known
        already; what was said since comes as if it were said now. `history`: else, how many of the last envelopes come
        first, `replayed`. `patience`: seconds for which a broken connection is tried again. `max_frame`: bytes.
        Raises `RequestError`."""
        if not token:
            raise RequestError("token: it is empty", param="token")
        self._link = Link(
            address(url, space),
            token,
            view=space_view(view),
            after_seq=after_seq,
            history=history,
            patience=patience,
            max_frame=max_frame,
        )
        self._inbox: Inbox | None = self._link.inbox()

    # --- being there ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Participant:
        """Raises `SpaceClosed`: the token is refused, or nobody answers."""
        await self._link.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._link.close()

    @property
    def id(self) -> str:
        return self._link.me.id

    @property
    def space(self) -> str:
        return self._link.address.space

    @property
    def capabilities(self) -> tuple[Any, ...]:
        """What this participant may send, as written."""
        return self._link.me.capabilities

    @property
    def participants(self) -> Mapping[str, Present]:
        """Who else is here, by id."""
        return self._link.others

    @property
    def head(self) -> int:
        """The number of the newest envelope that is known of."""
        return self._link.arrivals.head

    @property
    def seen(self) -> int:
        """The number of the last envelope that was received: `after_seq` for whoever comes back later."""
        return self._link.arrivals.seen

    @property
    def connected(self) -> bool:
        return self._link.connected

    @property
    def reader(self) -> SpaceReader:
        """The space's history, over HTTP."""
        return self._link.reader

    @property
    def view(self) -> SpaceView:
        return self._link.view

    async def look(self, view: SpaceView) -> None:
        """Another view from now on. What was folded away until now stays so."""
        await self._link.look(space_view(view))

    def may(self, kind: str, payload: Mapping[str, Any] | None = None, *, to: To = ()) -> bool:
        """Whether the capabilities allow it. The space has the last word."""
        envelope = Envelope(id="?", ts=0, sender=self.id, to=_several(to), kind=kind, payload=dict(payload or {}))
        held = []
        for written in self.capabilities:
            with contextlib.suppress(RequestError):
                held.append(Held(read_capability(written), "door"))
        return decide(held, envelope).allowed

    # --- hearing -------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        """Raises `SpaceClosed` once all that came was read, where the connection is over."""
        assert self._inbox is not None
        envelope = await self._inbox.next()
        if envelope is None:
            raise StopAsyncIteration
        return envelope

    @contextlib.contextmanager
    def listening(self) -> Iterator[Inbox]:
        """One more who reads everything from here on: `await inbox.next()`, None at the end."""
        inbox = self._link.inbox()
        try:
            yield inbox
        finally:
            self._link.no_more(inbox)

    @contextlib.contextmanager
    def told(self, hear: Callable[[Envelope], None]) -> Iterator[None]:
        """`hear` is called with every envelope that is not replayed, as it comes. It must not wait, or raise."""
        self._link.hearers.append(hear)
        try:
            yield
        finally:
            self._link.hearers.remove(hear)

    def awaiting(self, is_it: Callable[[Envelope], bool]) -> AbstractAsyncContextManager[asyncio.Future[Envelope]]:
        """`async with me.awaiting(…) as found: …; await found`: the first envelope that is heard from here on, and is
        not replayed, of which that is true."""
        return self._link.awaiting(is_it)

    # --- saying --------------------------------------------------------------------------------------------------

    async def send(
        self,
        kind: str,
        payload: Mapping[str, Any] | None = None,
        *,
        to: To = (),
        answers: Answers = (),
        context: str | None = None,
        id: str | None = None,
    ) -> Envelope:
        """Say it, and wait until it is stored; the envelope as the space has it, with its `seq`.

        `answers`: what it correlates to. Raises `Refused`, or `SpaceClosed`.
        """
        envelope = Envelope(
            id=id or uuid.uuid4().hex,
            ts=time.time_ns() // 1_000_000,
            sender=self.id,
            to=_several(to),
            kind=kinds.normal(kind),
            correlation_id=_ids(answers),
            context=context,
            payload=dict(payload or {}),
        )
        return await self._link.send(envelope)

    async def say(self, text: str, *, to: To = (), answers: Answers = (), context: str | None = None) -> Envelope:
        """A chat."""
        return await self.send(kinds.CHAT, {"text": text}, to=to, answers=answers, context=context)

    def reasoning(
        self,
        message: str | None = None,
        *,
        answers: Answers = (),
        to: To = (),
        context: str | None = None,
        references: Sequence[str] = (),
        **more: Any,
    ) -> Thinking:
        """A context of one's own to think in: `async with me.reasoning("…", answers=question) as thought`.

        `context`: the one it is nested in. `more` goes into the start's payload: `goal`, `approach`, `template`,
        `metadata` …
        """
        from .thinking import Thinking

        said = {"message": message, "references": list(references) or None, **more}
        payload = {name: value for name, value in said.items() if value is not None}
        return Thinking(self, payload, answers=answers, to=_several(to), parent=context)

    async def cancel(self, context: str, reason: str | None = None) -> Envelope:
        """End somebody's reasoning."""
        return await self.send(kinds.CANCEL, {"reason": reason} if reason else {}, context=context)

    # --- acting --------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        to: To = (),
        of: To = (),
        answers: Answers = (),
        context: str | None = None,
    ) -> Envelope:
        """An MCP request, and the response to it.

        `of`: whose response counts; otherwise anybody's to whom it is addressed. `answers`: the proposal that this
        fulfils. It waits as long as it takes: `async with asyncio.timeout(…)` bounds it. Raises `Refused`, or
        `SpaceClosed`.
        """
        id, targets = uuid.uuid4().hex, _several(to)
        payload = {"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params or {})}
        counts = _several(of) or targets

        def is_it(envelope: Envelope) -> bool:
            return (
                envelope.kind == kinds.RESPONSE
                and id in envelope.correlation_id
                and (not counts or envelope.sender in counts)
            )

        async with self.awaiting(is_it) as response:
            await self.send(kinds.REQUEST, payload, to=targets, answers=answers, context=context, id=id)
            return await response

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        to: To = (),
        of: To = (),
        answers: Answers = (),
        context: str | None = None,
    ) -> Any:
        """Call somebody's tool; the `result` of the response. Raises `CallFailed` too."""
        params = {"name": tool, "arguments": dict(arguments or {})}
        return result_of(await self.request("tools/call", params, to=to, of=of, answers=answers, context=context))

    async def respond(
        self, request: Envelope, result: Any = None, *, error: Mapping[str, Any] | None = None
    ) -> Envelope:
        """Answer an MCP request, among those who heard it: with a result, or an error (`code`, `message`)."""
        payload: dict[str, Any] = {"jsonrpc": "2.0", "id": request.payload.get("id", request.id)}
        payload |= {"result": result} if error is None else {"error": dict(error)}
        to = tuple(one for one in dict.fromkeys((request.sender, *request.to)) if one != self.id)
        return await self.send(
            kinds.RESPONSE, payload, to=to if request.to else (), answers=request, context=request.context
        )

    async def propose(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        to: To = (),
        answers: Answers = (),
        context: str | None = None,
        id: str | None = None,
    ) -> Envelope:
        """Say what should be done, for somebody who may do it."""
        payload = {"method": method, "params": dict(params or {})}
        return await self.send(kinds.PROPOSAL, payload, to=to, answers=answers, context=context, id=id)

    async def fulfil(self, proposal: Envelope, *, to: To = ()) -> Envelope:
        """Do what was proposed, before its proposer; the response. `to`: by whose tool."""
        params = proposal.payload.get("params")
        targets = _several(to)
        return await self.request(
            str(proposal.payload.get("method")),
            params if isinstance(params, dict) else {},
            to=(*targets, proposal.sender) if targets and proposal.sender not in targets else targets,
            of=targets,
            answers=proposal,
            context=proposal.context,
        )

    async def reject(self, proposal: Answers, reason: str | None = None) -> Envelope:
        return await self.send(kinds.REJECT, {"reason": reason} if reason else {}, answers=proposal)

    async def withdraw(self, proposal: Answers, reason: str | None = None) -> Envelope:
        return await self.send(kinds.WITHDRAW, {"reason": reason} if reason else {}, answers=proposal)

    async def proposed_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        to: To = (),
        context: str | None = None,
    ) -> Any:
        """Propose the call of a tool, wait until somebody makes it, and give the result. Whoever stops waiting
        withdraws it. Raises `CallFailed`: it was rejected, or it failed."""
        id = uuid.uuid4().hex
        made: set[str] = set()

        def is_it(envelope: Envelope) -> bool:
            if envelope.kind == kinds.REQUEST and id in envelope.correlation_id:
                made.add(envelope.id)
            return (envelope.kind == kinds.RESPONSE and not made.isdisjoint(envelope.correlation_id)) or (
                envelope.kind == kinds.REJECT and id in envelope.correlation_id
            )

        params = {"name": tool, "arguments": dict(arguments or {})}
        async with self.awaiting(is_it) as outcome:
            await self.propose("tools/call", params, to=to, context=context, id=id)
            try:
                settled = await outcome
            except BaseException:
                if not made:
                    with contextlib.suppress(Exception):
                        await self.withdraw(id, "no_longer_needed")
                raise
        if settled.kind == kinds.REJECT:
            why = settled.payload.get("reason")
            raise CallFailed(f"{settled.sender!r} rejected the call of {tool!r}", why, code="rejected")
        return result_of(settled)


def result_of(response: Envelope) -> Any:
    """The result in an MCP response. Raises `CallFailed`."""
    error = response.payload.get("error")
    if error is not None:
        raise CallFailed(f"the call failed at {response.sender!r}", error)
    return response.payload.get("result")


def _several(to: To | Collection[str]) -> tuple[str, ...]:
    return (to,) if isinstance(to, str) else tuple(to)


def _ids(answers: Answers) -> tuple[str, ...]:
    several = (answers,) if isinstance(answers, str | Envelope) else answers
    return tuple(dict.fromkeys(one.id if isinstance(one, Envelope) else one for one in several))


__all__ = ["Answers", "Participant", "To", "result_of"]
