"""Requests: who may answer an MCP request, and how often.

    requests = Requests()
    verdict = requests.feed(envelope)         # every envelope that passed the other checks, in order

The rules:

1. A request that names its recipients is answered by them alone, each once.
2. A call of a tool without recipients is answered once, by a participant who offers the tool. Who has listed tools (a
   response to `tools/list`) offers them; while no participant has listed the tool, anyone may answer.
3. Any other request without recipients is answered by anyone, each once: so tools are discovered.
4. A response to a request that is not remembered is flagged: its requester does not wait any more.

A response that breaks rule 1 to 3 is refused (`strict`) or flagged (`flag`). A refused envelope changes nothing, so
`replay` of the accepted ones gives the state again. Only the latest requests and tools are remembered.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ..errors import ErrorInfo
from ..unicode import truncate
from . import kinds
from .envelope import Envelope, Flag, refuse
from .mcp import LIST_TOOLS, tool_of

AnswerMode: TypeAlias = Literal["strict", "flag"]

MAX_NAME = 255
"""How many characters of a tool's name are remembered."""

UNKNOWN_REQUEST, NOT_ADDRESSED, NOT_OFFERED, ANSWERED = (
    "unknown_request",
    "not_addressed",
    "tool_not_offered",
    "already_answered",
)
"""The codes of errors and flags."""

_UNTRUSTED = frozenset({NOT_ADDRESSED, NOT_OFFERED, ANSWERED})


def is_trusted_response(envelope: Envelope) -> bool:
    """Return whether an envelope is a response that its requester may take for the answer: no flag says otherwise."""
    return envelope.kind == kinds.RESPONSE and not any(flag.code in _UNTRUSTED for flag in envelope.flags)


class Request(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request, and who has answered it."""

    to: tuple[str, ...] = ()
    tool: str | None = None
    """The tool that it calls."""
    lists_tools: bool = False
    answered_by: tuple[str, ...] = ()


class RequestState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The whole state of `Requests`. Each table is in the order of time, the oldest first."""

    requests: dict[str, Request] = {}
    tools: dict[str, tuple[str, ...]] = {}
    """Who offers a tool, by its name."""


class ResponseVerdict(msgspec.Struct, frozen=True):
    """What the rules say of a response."""

    error: ErrorInfo | None = None
    flags: tuple[Flag, ...] = ()


class Requests:
    """The requests of one space. `state` can be stored and passed in again."""

    def __init__(self, state: RequestState | None = None, *, max_requests: int = 500, max_tools: int = 1_000) -> None:
        self.state = state if state is not None else RequestState()
        self._max_requests = max_requests
        self._max_tools = max_tools

    def check(self, envelope: Envelope, mode: AnswerMode) -> ResponseVerdict:
        """Return why an envelope is refused, or its flags. Changes nothing."""
        if envelope.kind != kinds.RESPONSE:
            return ResponseVerdict()
        known = [(id, one) for id in envelope.correlation_id if (one := self.state.requests.get(id)) is not None]
        flags: list[Flag] = []
        if not known:
            flags.append(Flag(UNKNOWN_REQUEST, "it answers no request that this space remembers"))
        for id, request in known:
            error = self._error(envelope.sender, id, request)
            if error is None:
                continue
            if mode == "strict":
                return ResponseVerdict(error)
            flags.append(Flag(error.code or NOT_ADDRESSED, error.message))
        return ResponseVerdict(flags=tuple(flags))

    def _error(self, sender: str, id: str, request: Request) -> ErrorInfo | None:
        name = truncate(id)
        if request.to:
            if sender not in request.to:
                return refuse(
                    NOT_ADDRESSED,
                    f"request {name!r} is addressed to others; only its recipients answer it",
                    kind="forbidden",
                    param="correlation_id",
                )
        elif request.tool is not None:
            offered_by = self.state.tools.get(request.tool, ())
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

    def apply(self, envelope: Envelope) -> None:
        """Apply an accepted envelope."""
        if envelope.kind == kinds.REQUEST:
            tool = tool_of(envelope)
            self.state.requests.pop(envelope.id, None)
            self.state.requests[envelope.id] = Request(
                to=envelope.recipients,
                tool=tool[:MAX_NAME] if tool is not None else None,
                lists_tools=envelope.payload.get("method") == LIST_TOOLS,
            )
            if len(self.state.requests) > self._max_requests:
                del self.state.requests[next(iter(self.state.requests))]
        elif envelope.kind == kinds.RESPONSE:
            for id in envelope.correlation_id:
                request = self.state.requests.get(id)
                if request is None or self._error(envelope.sender, id, request) is not None:
                    continue
                request.answered_by = (*request.answered_by, envelope.sender)
                if request.lists_tools:
                    self._list(envelope.sender, envelope.payload.get("result"))
        elif envelope.kind == kinds.KICK:
            self._forget_participant(envelope.payload.get("participant_id"))

    def _list(self, participant: str, result: Any) -> None:
        """Remember who offers the tools of a result of `tools/list`."""
        listed = result.get("tools") if isinstance(result, dict) else None
        for tool in (listed if isinstance(listed, list) else ())[: self._max_tools]:
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            name = name[:MAX_NAME]
            offered_by = self.state.tools.pop(name, ())
            self.state.tools[name] = tuple(dict.fromkeys((*offered_by, participant)))
            if len(self.state.tools) > self._max_tools:
                del self.state.tools[next(iter(self.state.tools))]

    def _forget_participant(self, participant: Any) -> None:
        for name, offered_by in list(self.state.tools.items()):
            if participant in offered_by:
                rest = tuple(one for one in offered_by if one != participant)
                if rest:
                    self.state.tools[name] = rest
                else:
                    del self.state.tools[name]
