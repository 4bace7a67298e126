"""A client of a space: `async with Participant(url, token=…) as me`.

    async with Participant("ws://host:8080/spaces/review/ws", token=token) as me:
        question = await me.say("Should we deploy this?")
        async for envelope in me:
            …

The rules:

* An envelope that `send` returns is stored: its echo was received. An envelope without an echo is sent again after a
  reconnection, with the same id. A space accepts an envelope once. If there is no answer within `patience` seconds,
  `send` raises.
* `async for` yields every envelope that this participant may see, in the space's order, once, its own too. Those from
  before it joined are `replayed`: they must not be acted on.
* A space that was deleted and created again is another space. If that can be detected (it holds fewer envelopes than
  were seen), its `system/welcome` is yielded once, and everything that it holds follows, `replayed`.
* A reader that falls behind gets what it missed from the history. So memory is bounded, and nothing is lost.
* A lost connection is opened again where it stopped, for up to `patience` seconds. If that has no use (the token is
  refused, the participant was removed), everything that waits raises `SpaceClosed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypedDict

from ...envelopes import context as paths
from ...envelopes import kinds, mcp
from ...envelopes.envelope import Envelope
from ...envelopes.requests import is_trusted_response
from ...unicode import truncate
from .base_participant import Answers, BaseParticipant, To, recipients, reply_recipients
from .errors import CallFailed, Cancelled

CANCEL_TIMEOUT_SECONDS = 5.0
"""How long a block that raised waits until its cancel is stored."""


class Participant(BaseParticipant):
    """One participant of a space. Used as `async with`, in one event loop."""

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
        """Return a context of reasoning: `async with me.reasoning("…", answers=question) as thought`.

        Args:
            message: The text of its start.
            answers: The envelopes for which it is started.
            to: The recipients of everything in it. Empty: everyone.
            context: Path of the context in which it is nested.
            references: Ids of messages on which it builds.
            more: Further fields of the start's payload: `goal`, `approach`, `template`, `metadata` …
        """
        fields = {"message": message, "references": list(references) or None, **more}
        payload = {name: value for name, value in fields.items() if value is not None}
        return Thinking(self, payload, answers=answers, to=recipients(to), parent=context)

    async def cancel(self, context: str, reason: str | None = None) -> Envelope:
        """End a reasoning, also another participant's.

        Args:
            context: Its path, as its envelopes have it.
            reason: The reason.

        Returns:
            The stored envelope.
        """
        return await self.send(kinds.CANCEL, {"reason": reason} if reason else {}, context=context)

    # --- requests and proposals ----------------------------------------------------------------------------------

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
        """Send an MCP request and wait for its response.

        It waits without a limit; `async with asyncio.timeout(…)` sets one. A caller that stops waiting notifies the
        space (`give_up`).

        Args:
            method: The MCP method.
            params: Its parameters.
            to: The recipients. Empty: everyone.
            of: Whose response counts. Empty: that of any recipient.
            answers: The proposal that it fulfils.
            context: Path of its context.

        Returns:
            The response.

        Raises:
            Refused: If the space refuses the request.
            SpaceClosed: If there is no connection and there will be none.
        """
        id, targets = uuid.uuid4().hex, recipients(to)
        responders = recipients(of) or targets

        def is_response(envelope: Envelope) -> bool:
            return (
                is_trusted_response(envelope)
                and id in envelope.correlation_id
                and (not responders or envelope.sender in responders)
            )

        async with self.awaiting(is_response) as response:
            try:
                await self.send_request(method, params, to=targets, answers=answers, context=context, id=id)
                return await response
            except asyncio.CancelledError:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(CANCEL_TIMEOUT_SECONDS):
                        await self.give_up(id, to=targets, context=context)
                raise

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        to: To = (),
        answers: Answers = (),
        context: str | None = None,
        id: str | None = None,
    ) -> Envelope:
        """Send an MCP request without waiting for its response. Arguments and errors are those of `request`.

        Returns:
            The stored request, to whose id the response correlates.
        """
        id = id or uuid.uuid4().hex
        payload = {"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params or {})}
        return await self.send(kinds.REQUEST, payload, to=to, answers=answers, context=context, id=id)

    async def give_up(self, request: str, *, to: To = (), context: str | None = None) -> None:
        """Announce that the response to an own request is not needed any more, in MCP's way.

        Nothing is sent if it is not allowed or there is no connection.

        Args:
            request: Id of the request.
            to: The recipients of the request.
            context: Path of its context.
        """
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
        """Call a tool of another participant. Arguments are those of `request`.

        Returns:
            The `result` of the response.

        Raises:
            CallFailed: If the response is an error.
            Refused: If the space refuses the request.
            SpaceClosed: If there is no connection and there will be none.
        """
        params = mcp.call_params(tool, arguments)
        return result_of(await self.request(mcp.CALL_TOOL, params, to=to, of=of, answers=answers, context=context))

    async def respond(
        self, request: Envelope, result: Any = None, *, error: Mapping[str, Any] | None = None
    ) -> Envelope:
        """Respond to an MCP request, to its sender and its other recipients.

        Args:
            request: The request.
            result: The result.
            error: An error (`code`, `message`) instead of a result.
        """
        payload: dict[str, Any] = {"jsonrpc": "2.0", "id": request.payload.get("id", request.id)}
        payload |= {"result": result} if error is None else {"error": dict(error)}
        to = reply_recipients(request, self.id)
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
        """Propose an MCP request for another participant to make.

        Args:
            method: The MCP method.
            params: Its parameters.
            to: Who may fulfil or reject it. Empty: everyone.
            answers: The envelopes to which it correlates.
            context: Path of its context.
            id: Its id. None: a new one.

        Returns:
            The stored proposal.
        """
        payload = {"method": method, "params": dict(params or {})}
        return await self.send(kinds.PROPOSAL, payload, to=to, answers=answers, context=context, id=id)

    async def fulfil(self, proposal: Envelope, *, to: To = ()) -> Envelope:
        """Make the request that was proposed, visible to its proposer, and return the response.

        Args:
            proposal: The proposal.
            to: Whose tool is called. Empty: anyone's.
        """
        return await self.request(**fulfilment(proposal, to), of=to)

    async def reject(self, proposal: Answers, reason: str | None = None) -> Envelope:
        """Reject a proposal."""
        return await self.send(kinds.REJECT, {"reason": reason} if reason else {}, answers=proposal)

    async def withdraw(self, proposal: Answers, reason: str | None = None) -> Envelope:
        """Withdraw an own proposal."""
        return await self.send(kinds.WITHDRAW, {"reason": reason} if reason else {}, answers=proposal)

    async def proposed_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        to: To = (),
        context: str | None = None,
    ) -> Any:
        """Propose a tool call, wait until another participant makes it, and return the result.

        A caller that stops waiting withdraws the proposal. Arguments are those of `request`.

        Raises:
            CallFailed: If it was rejected or failed.
        """
        id = uuid.uuid4().hex
        request_ids: set[str] = set()

        def is_outcome(envelope: Envelope) -> bool:
            if envelope.kind == kinds.REQUEST and id in envelope.correlation_id:
                request_ids.add(envelope.id)
            return (is_trusted_response(envelope) and not request_ids.isdisjoint(envelope.correlation_id)) or (
                envelope.kind == kinds.REJECT and id in envelope.correlation_id
            )

        async with self.awaiting(is_outcome) as outcome:
            await self.propose(mcp.CALL_TOOL, mcp.call_params(tool, arguments), to=to, context=context, id=id)
            try:
                settled = await outcome
            except BaseException:
                if not request_ids:
                    with contextlib.suppress(Exception):
                        await self.withdraw(id, "no_longer_needed")
                raise
        if settled.kind == kinds.REJECT:
            reason = settled.payload.get("reason")
            raise CallFailed(f"{settled.sender!r} rejected the call of {tool!r}", reason, code="rejected")
        return result_of(settled)


class Fulfilment(TypedDict):
    """Arguments of `Participant.send_request` for a proposal."""

    method: str
    params: dict[str, Any]
    to: tuple[str, ...]
    answers: Envelope
    context: str | None


def fulfilment(proposal: Envelope, to: To) -> Fulfilment:
    """Return the request that fulfils a proposal.

    Its recipients are those whose tool is called (empty: everyone), and its proposer.
    """
    targets, params = recipients(to), proposal.payload.get("params")
    return {
        "method": str(proposal.payload.get("method")),
        "params": params if isinstance(params, dict) else {},
        "to": (*targets, proposal.sender) if targets and proposal.sender not in targets else targets,
        "answers": proposal,
        "context": proposal.context,
    }


def result_of(response: Envelope) -> Any:
    """Return the result in an MCP response.

    Raises:
        CallFailed: If the response is an error.
    """
    error = response.payload.get("error")
    if error is not None:
        detail = error.get("message") if isinstance(error, dict) else error
        suffix = f": {truncate(detail)}" if isinstance(detail, str) and detail else ""
        raise CallFailed(f"the call failed at {response.sender!r}{suffix}", error)
    return response.payload.get("result")


class Thinking:
    """A context of reasoning, as its owner uses it.

    `Participant.reasoning` returns it; its own `reasoning` nests another one.

        async with me.reasoning("Checking security …", answers=question) as thought:
            await thought("Auth changes need careful review.")
            found = await thought.call("security_scan", {"path": "auth/"})
            await thought.observation("Tokens may not expire", severity="high")
            async with thought.reasoning("A closer look at the tokens") as closer:
                …
            await thought.conclude("The risk is too high", confidence=0.9)

    It opens with the block and ends with it: concluded, with or without text; cancelled if the block raises. If another
    participant ends it, `Cancelled` is raised inside the block, wherever it waits.
    """

    def __init__(
        self, me: Participant, payload: dict[str, Any], *, answers: Answers, to: tuple[str, ...], parent: str | None
    ) -> None:
        self._me = me
        self._payload = payload
        self._answers = answers
        self._to = to
        self._parent = parent
        self._start: Envelope | None = None
        self._has_ended = False
        """Ended by us."""
        self._cancelled: Cancelled | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancel_requests = 0
        self._stack = contextlib.ExitStack()

    @property
    def start(self) -> Envelope:
        """The envelope that opened it. Answers correlate to it."""
        if self._start is None:
            raise RuntimeError("this reasoning has not begun: use it in `async with`")
        return self._start

    @property
    def path(self) -> str:
        """Path of the context."""
        return paths.child(self._parent, self.start.id)

    # --- life cycle ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Thinking:
        self._start = await self._me.send(
            kinds.START, self._payload, to=self._to, answers=self._answers, context=self._parent
        )
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancel_requests = self._task.cancelling()
        self._stack.enter_context(self._me.subscribe(self._on_envelope))
        return self

    async def __aexit__(
        self, type_: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._cancelled is not None:
            assert self._task is not None
            remaining_cancels = self._task.uncancel()
            if remaining_cancels <= self._cancel_requests and (
                error is None or isinstance(error, asyncio.CancelledError)
            ):
                raise self._cancelled from error
            return
        if self._has_ended:
            return
        if error is None:
            await self._send(kinds.CONCLUSION, {})
            return
        reason = "stopped" if isinstance(error, asyncio.CancelledError) else f"failed ({type(error).__name__})"
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CANCEL_TIMEOUT_SECONDS):
                await self._send(kinds.CANCEL, {"reason": reason})

    def _on_envelope(self, envelope: Envelope) -> None:
        """Cancel the block if another participant ended the context."""
        if envelope.kind not in (kinds.CANCEL, kinds.CONCLUSION) or self._cancelled or self._has_ended:
            return
        if envelope.sender == self._me.id or not self._includes_context(envelope.context):
            return
        reason = envelope.payload.get("reason")
        self._cancelled = Cancelled(self.path, envelope.sender, reason if isinstance(reason, str) else None)
        assert self._task is not None
        self._task.cancel()

    def _includes_context(self, context: str | None) -> bool:
        """Check whether a context is this one or one around it, by its path or by the id of its start."""
        if context is None:
            return False
        return paths.is_within(self.path, context) or context in paths.segments(self.path)

    # --- thinking ------------------------------------------------------------------------------------------------

    async def __call__(self, message: str, *, answers: Answers = (), **more: Any) -> Envelope:
        """Send a thought.

        Args:
            message: Its text.
            answers: The envelopes to which it correlates.
            more: `confidence`, `uncertainty`, `step` (of a template), `metadata` …
        """
        return await self._send(kinds.THOUGHT, {"message": message, **more}, answers)

    async def observation(self, content: str, *, severity: str | None = None, **more: Any) -> Envelope:
        """Send an observation.

        Args:
            content: Its text.
            severity: Its severity.
            more: `components`, `details` …
        """
        return await self._send(kinds.OBSERVATION, {"content": content, "severity": severity, **more})

    async def hypothesis(
        self, hypothesis: str, *, confidence: float | None = None, evidence: Any = None, **more: Any
    ) -> Envelope:
        """Send a hypothesis.

        Args:
            hypothesis: Its text.
            confidence: From 0 to 1.
            evidence: Any JSON value.
            more: Further fields of the payload.
        """
        return await self._send(
            kinds.HYPOTHESIS, {"hypothesis": hypothesis, "confidence": confidence, "evidence": evidence, **more}
        )

    async def question(self, *questions: str, **more: Any) -> Envelope:
        """Send questions."""
        return await self._send(kinds.QUESTION, {"questions": list(questions), **more})

    async def conclude(
        self,
        message: str | None = None,
        *,
        decision: str | None = None,
        confidence: float | None = None,
        key_factors: Sequence[str] | None = None,
        recommendation: str | None = None,
        **more: Any,
    ) -> Envelope:
        """Conclude the context. Nothing can be thought in it afterwards.

        Args:
            message: Its text.
            decision: The decision.
            confidence: From 0 to 1.
            key_factors: The factors of the decision.
            recommendation: The recommendation.
            more: Further fields of the payload.
        """
        payload = {
            "message": message,
            "decision": decision,
            "confidence": confidence,
            "key_factors": list(key_factors) if key_factors is not None else None,
            "recommendation": recommendation,
            **more,
        }
        self._has_ended = True
        return await self._send(kinds.CONCLUSION, payload)

    def reasoning(self, message: str | None = None, *, answers: Answers = (), **more: Any) -> Thinking:
        """Return a context inside this one. Arguments are those of `Participant.reasoning`."""
        return self._me.reasoning(message, answers=answers, to=self._to, context=self.path, **more)

    @property
    def to(self) -> tuple[str, ...]:
        """The recipients of what is sent in it from now on. Empty: everyone."""
        return self._to

    async def share(self, to: To, reason: str | None = None) -> Envelope:
        """Add participants to the audience of the context. They receive what follows.

        Args:
            to: The participants.
            reason: Why they are added, for all who may read it.

        Raises:
            Refused: If the context is for everyone, or the context around it is not for them.
        """
        added = recipients(to)
        payload = {"participants": list(added)} | ({"reason": reason} if reason is not None else {})
        stored = await self._me.send(kinds.SHARE, payload, context=self.path)
        self._to = tuple(dict.fromkeys((*self._to, *added)))
        return stored

    # --- requests and proposals in this context ------------------------------------------------------------------

    async def say(self, text: str, *, answers: Answers = ()) -> Envelope:
        """Send a chat in the context, which is not a thought."""
        return await self._me.say(text, to=self._to, answers=answers, context=self.path)

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, to: To = (), **more: Any
    ) -> Envelope:
        """Send an MCP request in the context (see `Participant.request`)."""
        return await self._me.request(method, params, to=to, context=self.path, **more)

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, *, to: To = (), **more: Any) -> Any:
        """Call a tool in the context (see `Participant.call`)."""
        return await self._me.call(tool, arguments, to=to, context=self.path, **more)

    async def propose(self, tool: str, arguments: Mapping[str, Any] | None = None, *, to: To = ()) -> Any:
        """Propose a tool call in the context (see `Participant.proposed_call`)."""
        return await self._me.proposed_call(tool, arguments, to=to, context=self.path)

    async def add(self, kind: str, payload: Mapping[str, Any], *, answers: Answers = ()) -> Envelope:
        """Send an envelope of any other kind in the context."""
        return await self._send(kind, payload, answers)

    async def _send(self, kind: str, payload: Mapping[str, Any], answers: Answers = ()) -> Envelope:
        fields = {name: value for name, value in payload.items() if value is not None}
        return await self._me.send(kind, fields, to=self._to, answers=answers, context=self.path)
