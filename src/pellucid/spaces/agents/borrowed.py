"""The tools of others in a space, as an agent may be told of them: who has which, and what comes of calling one.

They are asked for (`tools/list`) of those who may answer, once, and of whoever comes later. Whoever leaves takes theirs
along. Whoever did not answer is a person, as far as can be told: nobody waits for them again, and they are not asked
again when they come back, unless they were heard answering some request. A tool that this participant may not call is
proposed instead, and waits for somebody who may.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...envelopes import kinds, mcp
from ...envelopes.capability import Held, decide, read_capability
from ...envelopes.envelope import Envelope
from ...errors import RequestError
from ...parts import ToolCallPart
from ...settings import ToolDefinition
from ...tools.calling import arguments_of
from ..client.participant import Participant, result_of
from ..client.refusals import CallFailed

MOST = 64
"""How many tools of one participant an agent is told of."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Offer(NamedTuple):
    who: str
    """Empty: whoever has it."""
    tool: str
    """What it is called there."""
    definition: ToolDefinition
    """As the model is told."""


class Borrowed:
    """`known`: tools that nobody has to be asked about, by who has them (`""`: whoever it is)."""

    def __init__(self, me: Participant, known: Mapping[str, Collection[ToolDefinition]] | None = None) -> None:
        self._me = me
        self._known = known or {}
        self._of: dict[str, dict[str, ToolDefinition]] = {}
        self._asked: dict[str, frozenset[str]] = {}
        """Requests for lists, and of whom an answer is awaited."""
        self._open: dict[str, tuple[str, ...]] = {}
        """Those to which nothing came back yet, and to whom they were."""
        self._silent: set[str] = set()
        """Who was asked, and did not answer yet."""
        self._answer: set[str] = set()
        """Who was heard answering a request: whatever they are, they are no people."""
        self._heard = asyncio.Event()

    def hear(self, envelope: Envelope) -> list[str]:
        """Ids of participants who are to be asked now."""
        if envelope.kind == kinds.PRESENCE:
            who = str(envelope.payload["participant"]["id"])
            if envelope.payload.get("event") == "leave":
                self._of.pop(who, None)
                self._heard.set()
            elif envelope.payload.get("event") == "join" and who not in self._of:
                return [who] if who not in self._silent and self._may_have_some(who) else []
        elif envelope.kind == kinds.RESPONSE:
            return self._hear_answer(envelope)
        return []

    def _hear_answer(self, response: Envelope) -> list[str]:
        who = response.sender
        first = who not in self._answer
        self._answer.add(who)
        if any(id in self._asked for id in response.correlation_id):
            self._of[who] = _tools_in(response)
            self._silent.discard(who)
            for id in response.correlation_id:
                self._open.pop(id, None)
            self._heard.set()
            return []
        return [who] if first and who not in self._of and who in self._me.participants else []

    def _may_have_some(self, who: str) -> bool:
        present = self._me.participants.get(who)
        return present is not None and may_answer(present.capabilities)

    async def ask(self, who: Collection[str] = ()) -> None:
        """Nobody: everybody who is here, and may answer."""
        asked = tuple(who or (one for one in self._me.participants if self._may_have_some(one)))
        to = asked if who or len(asked) < len(self._me.participants) else ()
        payload = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": mcp.LIST}
        if not asked or not self._me.may(kinds.REQUEST, payload, to=to):
            return
        self._asked[payload["id"]] = frozenset(asked)
        self._open[payload["id"]] = to
        self._silent.update(asked)
        await self._me.send(kinds.REQUEST, payload, to=to, id=payload["id"])

    async def settle(self, seconds: float) -> None:
        """Wait until all who were asked have answered or gone, for so long at most."""
        try:
            async with asyncio.timeout(seconds):
                while any(who not in self._of and who in self._me.participants for who in self._awaited()):
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            self._asked = {id: frozenset() for id in self._asked}  # people have no tools, and do not say so
            given_up, self._open = self._open, {}
            for id, to in given_up.items():
                await self._me.give_up(id, to=to)

    def _awaited(self) -> set[str]:
        return set().union(*self._asked.values())

    def tools(self, but: Collection[str] = ()) -> dict[str, Offer]:
        """By the name under which the model knows it. A name that is taken (`but`, or by another participant's tool)
        has its owner's before it."""
        found: dict[str, Offer] = {}
        every = {who: {tool.name: tool for tool in tools} for who, tools in self._known.items()} | self._of
        for who, tools in every.items():
            for tool in tools.values():
                name = tool.name
                if name in found or name in but:
                    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{who}_{name}")[:64]
                if name not in found and name not in but and self._may(who, tool.name):
                    found[name] = Offer(who, tool.name, msgspec.structs.replace(tool, name=name))
        return found

    def _may(self, who: str, tool: str) -> bool:
        return self._way(who, tool, {}) is not None or self._me.may(kinds.PROPOSAL, _payload(tool, {}))

    def _way(self, who: str, tool: str, arguments: Mapping[str, Any], open: bool = True) -> tuple[str, ...] | None:
        """To whom a call is addressed; None: it may not be made. It is made before all, so that it can be seen what
        comes of it, where nobody else would answer."""
        several = sum(tool in tools for tools in self._of.values()) > 1
        for to in ((), _to(who)) if open and not several else (_to(who),):
            if self._me.may(kinds.REQUEST, _payload(tool, arguments), to=to):
                return to
        return None

    async def call(self, offer: Offer, call: ToolCallPart, context: str | None, to: tuple[str, ...] = ()) -> Any:
        """What came of it, as the model is told: text, or what JSON holds. `to`: among whom, if not before all. Raises
        `PellucidError` for the space's own refusals, and nothing for a tool's."""
        try:
            arguments = arguments_of(call)
        except ValueError as error:
            return f"The arguments do not fit: {error}"
        who, tool, _ = offer
        way = self._way(who, tool, arguments, not to)
        try:
            if way is None:
                return _plain(await self._me.proposed_call(tool, arguments, to=to, context=context))
            return _plain(await self._me.call(tool, arguments, to=way, of=_to(who), context=context))
        except CallFailed as failed:
            why = failed.error.get("message") if isinstance(failed.error, dict) else failed.error
            return f"{failed.info.message}{f': {why}' if isinstance(why, str) else ''}"


def may_answer(capabilities: Sequence[Any]) -> bool:
    """Whether somebody who may do this could answer a request. A capability that cannot be read may allow it."""
    answer = Envelope(id="?", ts=0, sender="?", kind=kinds.RESPONSE, payload={"result": {}})
    held = []
    for written in capabilities:
        try:
            held.append(Held(read_capability(written), "door"))
        except RequestError:
            return True
    return decide(held, answer).allowed


def _payload(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"method": mcp.CALL, "params": mcp.calling(tool, arguments)}


def _to(who: str) -> tuple[str, ...]:
    return (who,) if who else ()


def _tools_in(response: Envelope) -> dict[str, ToolDefinition]:
    """What the answer to a `tools/list` offers, as far as it can be told to a model."""
    try:
        listed = result_of(response)["tools"][:MOST]
    except (CallFailed, KeyError, TypeError):
        return {}
    tools: dict[str, ToolDefinition] = {}
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict):
            continue
        name, about, schema = one.get("name"), one.get("description"), one.get("inputSchema")
        if isinstance(name, str) and _NAME.fullmatch(name):
            tools[name] = ToolDefinition(
                name,
                schema if isinstance(schema, dict) else {"type": "object"},
                about if isinstance(about, str) else None,
            )
    return tools


def _plain(result: Any) -> Any:
    """An MCP result: its text, where it is text; else as it is."""
    text = mcp.text_in(result)
    if text is None:
        return result
    return f"The call failed: {text}" if result.get("isError") is True else text
