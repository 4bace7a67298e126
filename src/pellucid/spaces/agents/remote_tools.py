"""The tools of other participants, as an agent's model sees them: which participant has which, and the calls.

Lists are requested (`tools/list`) once from all participants who may answer, and from each one who joins later. The
tools of a participant who leaves are removed. A participant who does not answer is taken for a person: it is not waited
for again, and not asked again when it comes back, unless it answers some request. A tool that this participant may not
call is proposed instead, and waits for a participant who may.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

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
"""Maximum number of tools of one participant that an agent sees."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class RemoteTool(NamedTuple):
    """A tool of another participant."""

    participant: str
    """Empty: any participant who has it."""
    remote_name: str
    """Its name at that participant."""
    definition: ToolDefinition
    """Its definition for the model."""


class RemoteTools:
    """The tools of all other participants.

    Args:
        me: The participant.
        known: Definitions that do not have to be requested, by participant (`""`: any participant).
    """

    def __init__(self, me: Participant, known: Mapping[str, Collection[ToolDefinition]] | None = None) -> None:
        self._me = me
        self._known = known or {}
        self._by_participant: dict[str, dict[str, ToolDefinition]] = {}
        self._awaited_by_request: dict[str, frozenset[str]] = {}
        """By id of a request for lists: the participants who have to answer."""
        self._unanswered: dict[str, tuple[str, ...]] = {}
        """Requests without any answer, with their recipients."""
        self._silent: set[str] = set()
        """Participants who were asked and have not answered yet."""
        self._responders: set[str] = set()
        """Participants who answered some request, so they are not people."""
        self._changed = asyncio.Event()

    def on_envelope(self, envelope: Envelope) -> list[str]:
        """Process an envelope.

        Returns:
            Ids of participants whose lists have to be requested now.
        """
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
        """Request the lists of these participants. Empty: of everyone who is present and may answer."""
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
        """Wait until everyone who was asked has answered or left, up to a time-out."""
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
            }  # people have no tools and do not answer
            unanswered, self._unanswered = self._unanswered, {}
            for id, to in unanswered.items():
                await self._me.give_up(id, to=to)

    def _awaited(self) -> set[str]:
        return set().union(*self._awaited_by_request.values())

    def tools(self, excluded_names: Collection[str] = ()) -> dict[str, RemoteTool]:
        """Return the callable tools by the name that the model sees.

        A name that is taken (by `excluded_names`, or by another participant's tool) gets its participant's name as a
        prefix.
        """
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
                    by_name[name] = RemoteTool(participant, tool.name, dataclasses.replace(tool, name=name))
        return by_name

    def _is_callable(self, participant: str, tool: str) -> bool:
        return self._call_recipients(participant, tool, {}) is not None or self._me.may(
            kinds.PROPOSAL, _call_payload(tool, {})
        )

    def _call_recipients(
        self, participant: str, tool: str, arguments: Mapping[str, Any], allow_broadcast: bool = True
    ) -> tuple[str, ...] | None:
        """Return the recipients of a call; None if it may not be made.

        A call goes to everyone if only one participant could answer, so that others can follow it.
        """
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
        """Call or propose a tool.

        Args:
            remote_tool: The tool.
            call: The model's call.
            context: Path of the context.
            to: The recipients, if not everyone.

        Returns:
            The result for the model: text, or a JSON value. The failure of a tool is a text, too.

        Raises:
            PellucidError: If the space refuses the call.
        """
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
    """Check whether a participant with these capabilities could answer a request.

    A capability that cannot be read may allow it.
    """
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
    """Return the tools in a response to `tools/list` that can be offered to a model."""
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
    """Return the text of an MCP result; any other result unchanged."""
    text = mcp.result_text(result)
    if text is None:
        return result
    return f"The call failed: {text}" if result.get("isError") is True else text
