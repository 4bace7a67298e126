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
from ...envelopes.capability import HeldCapability, decide, read_capability
from ...envelopes.envelope import Envelope
from ...errors import RequestError
from ...parts import ToolCallPart
from ...settings import ToolDefinition
from ...tools.execution import decoded_arguments
from ..client.errors import CallFailed
from ..client.participant import Participant, result_of

MAX_TOOLS_PER_PARTICIPANT = 64
"""How many tools of one participant an agent is told of."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class RemoteTool(NamedTuple):
    participant: str
    """Empty: whoever has it."""
    remote_name: str
    """What it is called there."""
    definition: ToolDefinition
    """As the model is told."""


class RemoteTools:
    """`known`: tools that nobody has to be asked about, by who has them (`""`: whoever it is)."""

    def __init__(self, me: Participant, known: Mapping[str, Collection[ToolDefinition]] | None = None) -> None:
        self._me = me
        self._known = known or {}
        self._by_participant: dict[str, dict[str, ToolDefinition]] = {}
        self._awaited_by_request: dict[str, frozenset[str]] = {}
        """Requests for lists, and of whom an answer is awaited."""
        self._unanswered: dict[str, tuple[str, ...]] = {}
        """Those to which nothing came back yet, and to whom they were."""
        self._silent: set[str] = set()
        """Who was asked, and did not answer yet."""
        self._responders: set[str] = set()
        """Who was heard answering a request: whatever they are, they are no people."""
        self._changed = asyncio.Event()

    def on_envelope(self, envelope: Envelope) -> list[str]:
        """Ids of participants who are to be asked now."""
        if envelope.kind == kinds.PRESENCE:
            participant = str(envelope.payload["participant"]["id"])
            if envelope.payload.get("event") == "leave":
                self._by_participant.pop(participant, None)
                self._changed.set()
            elif envelope.payload.get("event") == "join" and participant not in self._by_participant:
                return [participant] if participant not in self._silent and self._may_have_tools(participant) else []
        elif envelope.kind == kinds.RESPONSE:
            return self._on_response(envelope)
        return []

    def _on_response(self, response: Envelope) -> list[str]:
        participant = response.sender
        first = participant not in self._responders
        self._responders.add(participant)
        if any(id in self._awaited_by_request for id in response.correlation_id):
            self._by_participant[participant] = _listed_tools(response)
            self._silent.discard(participant)
            for id in response.correlation_id:
                self._unanswered.pop(id, None)
            self._changed.set()
            return []
        return (
            [participant]
            if first and participant not in self._by_participant and participant in self._me.participants
            else []
        )

    def _may_have_tools(self, participant: str) -> bool:
        present = self._me.participants.get(participant)
        return present is not None and may_respond(present.capabilities)

    async def request_lists(self, participants: Collection[str] = ()) -> None:
        """Nobody: everybody who is here, and may answer."""
        recipients = tuple(participants or (one for one in self._me.participants if self._may_have_tools(one)))
        to = recipients if participants or len(recipients) < len(self._me.participants) else ()
        payload = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": mcp.LIST_TOOLS}
        if not recipients or not self._me.may(kinds.REQUEST, payload, to=to):
            return
        self._awaited_by_request[payload["id"]] = frozenset(recipients)
        self._unanswered[payload["id"]] = to
        self._silent.update(recipients)
        await self._me.send(kinds.REQUEST, payload, to=to, id=payload["id"])

    async def wait_for_lists(self, timeout_seconds: float) -> None:
        """Wait until all who were asked have answered or gone, for so long at most."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while any(
                    participant not in self._by_participant and participant in self._me.participants
                    for participant in self._awaited()
                ):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self._awaited_by_request = {
                id: frozenset() for id in self._awaited_by_request
            }  # people have no tools, and do not say so
            unanswered, self._unanswered = self._unanswered, {}
            for id, to in unanswered.items():
                await self._me.give_up(id, to=to)

    def _awaited(self) -> set[str]:
        return set().union(*self._awaited_by_request.values())

    def tools(self, excluded_names: Collection[str] = ()) -> dict[str, RemoteTool]:
        """By the name under which the model knows it. A name that is taken (`but`, or by another participant's tool)
        has its owner's before it."""
        by_name: dict[str, RemoteTool] = {}
        every = {
            participant: {tool.name: tool for tool in tools} for participant, tools in self._known.items()
        } | self._by_participant
        for participant, tools in every.items():
            for tool in tools.values():
                name = tool.name
                if name in by_name or name in excluded_names:
                    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{participant}_{name}")[:64]
                if name not in by_name and name not in excluded_names and self._is_callable(participant, tool.name):
                    by_name[name] = RemoteTool(participant, tool.name, msgspec.structs.replace(tool, name=name))
        return by_name

    def _is_callable(self, participant: str, tool: str) -> bool:
        return self._call_recipients(participant, tool, {}) is not None or self._me.may(
            kinds.PROPOSAL, _call_payload(tool, {})
        )

    def _call_recipients(
        self, participant: str, tool: str, arguments: Mapping[str, Any], allow_broadcast: bool = True
    ) -> tuple[str, ...] | None:
        """To whom a call is addressed; None: it may not be made. It is made before all, so that it can be seen what
        comes of it, where nobody else would answer."""
        is_ambiguous = sum(tool in tools for tools in self._by_participant.values()) > 1
        for to in (
            ((), _recipients_of(participant))
            if allow_broadcast and not is_ambiguous
            else (_recipients_of(participant),)
        ):
            if self._me.may(kinds.REQUEST, _call_payload(tool, arguments), to=to):
                return to
        return None

    async def call(
        self, remote_tool: RemoteTool, call: ToolCallPart, context: str | None, to: tuple[str, ...] = ()
    ) -> Any:
        """What came of it, as the model is told: text, or what JSON holds. `to`: among whom, if not before all. Raises
        `PellucidError` for the space's own refusals, and nothing for a tool's."""
        try:
            arguments = decoded_arguments(call)
        except ValueError as error:
            return f"The arguments do not fit: {error}"
        participant, tool, _ = remote_tool
        recipients = self._call_recipients(participant, tool, arguments, not to)
        try:
            if recipients is None:
                return _as_text(await self._me.proposed_call(tool, arguments, to=to, context=context))
            return _as_text(
                await self._me.call(tool, arguments, to=recipients, of=_recipients_of(participant), context=context)
            )
        except CallFailed as failed:
            detail = failed.error.get("message") if isinstance(failed.error, dict) else failed.error
            return f"{failed.info.message}{f': {detail}' if isinstance(detail, str) else ''}"


def may_respond(capabilities: Sequence[Any]) -> bool:
    """Whether somebody who may do this could answer a request. A capability that cannot be read may allow it."""
    response = Envelope(id="?", ts=0, sender="?", kind=kinds.RESPONSE, payload={"result": {}})
    held = []
    for written in capabilities:
        try:
            held.append(HeldCapability(read_capability(written), "door"))
        except RequestError:
            return True
    return decide(held, response).allowed


def _call_payload(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"method": mcp.CALL_TOOL, "params": mcp.call_params(tool, arguments)}


def _recipients_of(participant: str) -> tuple[str, ...]:
    return (participant,) if participant else ()


def _listed_tools(response: Envelope) -> dict[str, ToolDefinition]:
    """What the answer to a `tools/list` offers, as far as it can be told to a model."""
    try:
        listed = result_of(response)["tools"][:MAX_TOOLS_PER_PARTICIPANT]
    except (CallFailed, KeyError, TypeError):
        return {}
    tools: dict[str, ToolDefinition] = {}
    for one in listed if isinstance(listed, list) else ():
        if not isinstance(one, dict):
            continue
        name, description, schema = one.get("name"), one.get("description"), one.get("inputSchema")
        if isinstance(name, str) and _NAME.fullmatch(name):
            tools[name] = ToolDefinition(
                name,
                schema if isinstance(schema, dict) else {"type": "object"},
                description if isinstance(description, str) else None,
            )
    return tools


def _as_text(result: Any) -> Any:
    """An MCP result: its text, where it is text; else as it is."""
    text = mcp.result_text(result)
    if text is None:
        return result
    return f"The call failed: {text}" if result.get("isError") is True else text
