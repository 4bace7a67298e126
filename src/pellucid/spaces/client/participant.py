"""Somebody in a space, from outside: `async with Participant(url, token=…) as me`.

    async with Participant("ws://host:8080/spaces/review/ws", token=token) as me:
        question = await me.say("Should we deploy this?")
        async for envelope in me:
            …

The rules:

* What `send` gave back is stored: its echo was heard. What was not echoed before a connection broke is sent again with
  its id, and a space takes an envelope once.
* `async for` gives every envelope that this participant is shown, in the space's order, once, its own too. Those that
  were said before it came are `replayed`: to be looked at, never to be acted on.
* A space that was deleted and made anew is another one: where it can be told (it holds less than was seen), its
  `system/welcome` comes in between, once, and all that there is follows, `replayed`.
* Whoever does not read gets what it left out of the history later: nothing grows without bound, and nothing is lost.
* A connection that breaks is made again, from where it broke, within `patience` seconds. Where it will not be (a token
  that is refused, a participant who was put out), everything that waits raises `SpaceClosed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ...envelopes import kinds, mcp
from ...envelopes.envelope import Envelope
from ...text import brief
from .refusals import CallFailed
from .thinking import LAST_WORD_SECONDS, Thinking
from .voice import Voice
from .whom import Answers, To, among, recipients


class Participant(Voice):
    """One participant. Used as `async with`, in one event loop."""

    # --- reasoning -----------------------------------------------------------------------------------------------

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
        said = {"message": message, "references": list(references) or None, **more}
        payload = {name: value for name, value in said.items() if value is not None}
        return Thinking(self, payload, answers=answers, to=recipients(to), parent=context)

    async def cancel(self, context: str, reason: str | None = None) -> Envelope:
        """End somebody's reasoning: `context` is its path, as its envelopes say it."""
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
        fulfils. It waits as long as it takes: `async with asyncio.timeout(…)` bounds it, and whoever stops waiting
        says so (`give_up`). Raises `Refused`, or `SpaceClosed`.
        """
        id, targets = uuid.uuid4().hex, recipients(to)
        payload = {"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params or {})}
        counts = recipients(of) or targets

        def is_it(envelope: Envelope) -> bool:
            return (
                envelope.kind == kinds.RESPONSE
                and id in envelope.correlation_id
                and (not counts or envelope.sender in counts)
            )

        async with self.awaiting(is_it) as response:
            try:
                await self.send(kinds.REQUEST, payload, to=targets, answers=answers, context=context, id=id)
                return await response
            except asyncio.CancelledError:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(LAST_WORD_SECONDS):
                        await self.give_up(id, to=targets, context=context)
                raise

    async def give_up(self, request: str, *, to: To = (), context: str | None = None) -> None:
        """Say that nobody waits any more for the answer to a request of one's own, by its id: as MCP has it. Where that
        may not be said, or the connection is broken, it is not."""
        payload = {"jsonrpc": "2.0", "method": mcp.CANCELLED, "params": {"requestId": request}}
        if self.connected and self.may(kinds.REQUEST, payload, to=to):
            await self.send(kinds.REQUEST, payload, to=to, answers=request, context=context)

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
        params = mcp.calling(tool, arguments)
        return result_of(await self.request(mcp.CALL, params, to=to, of=of, answers=answers, context=context))

    async def respond(
        self, request: Envelope, result: Any = None, *, error: Mapping[str, Any] | None = None
    ) -> Envelope:
        """Answer an MCP request, among those who heard it: with a result, or an error (`code`, `message`)."""
        payload: dict[str, Any] = {"jsonrpc": "2.0", "id": request.payload.get("id", request.id)}
        payload |= {"result": result} if error is None else {"error": dict(error)}
        to = among(request, self.id)
        return await self.send(kinds.RESPONSE, payload, to=to, answers=request, context=request.context)

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
        targets = recipients(to)
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

        async with self.awaiting(is_it) as outcome:
            await self.propose(mcp.CALL, mcp.calling(tool, arguments), to=to, context=context, id=id)
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
        why = error.get("message") if isinstance(error, dict) else error
        said = f": {brief(why)}" if isinstance(why, str) and why else ""
        raise CallFailed(f"the call failed at {response.sender!r}{said}", error)
    return response.payload.get("result")
