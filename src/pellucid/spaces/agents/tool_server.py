"""Tools that a participant offers to others: answers `tools/list` and `tools/call` in the space.

    async with Participant(url, token=token) as me, ToolsInSpace(me, [git_diff, run_tests]):
        await asyncio.Future()

A request is answered if it is addressed to this participant alone, or also to others and names one of its tools.
Replayed requests are never answered. A failed tool is answered with an error that contains nothing of the exception; so
is a call whose result the space refuses. A call whose response is not needed any more is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from ...envelopes import kinds
from ...envelopes.envelope import Envelope
from ...envelopes.mcp import CALL_TOOL, CANCELLED, LIST_TOOLS, tool_of, tool_result
from ...errors import PellucidError
from ...parts import RetryPromptPart, ToolCallPart
from ...telemetry import log
from ...tools import AnyTool, ExecutionOptions, FailureCounter, RunContext, call_tools, tools_by_name
from ..client.errors import Refused
from ..client.participant import Participant

MAX_CONCURRENT_CALLS = 8
"""Maximum number of concurrent calls of one participant's tools."""

_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_INTERNAL_ERROR = -32603


class ToolsInSpace:
    """Offers tools in a space, as `async with`."""

    def __init__(
        self,
        me: Participant,
        tools: Sequence[AnyTool | Callable[..., Any]] = (),
        *,
        tool_timeout: float | None = 60.0,
        deps: Any = None,
        ignore: Callable[[Envelope], bool] | None = None,
    ) -> None:
        """Create a tool server.

        Args:
            me: The participant.
            tools: Functions, as for agents.
            tool_timeout: Seconds for one call. None: no limit.
            deps: The dependencies in the tools' context.
            ignore: Requests that another component handles.

        Raises:
            RequestError: If a tool is not valid.
        """
        self._me = me
        self._tools = tools_by_name(tools)
        self._options = ExecutionOptions(timeout=tool_timeout, on_error="report")
        self._ignore = ignore
        self._context: RunContext[Any] = RunContext(deps, None)
        self._call_slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._tasks: dict[asyncio.Task[None], Envelope] = {}
        """Requests that are being answered."""
        self._stack = ExitStack()

    async def __aenter__(self) -> ToolsInSpace:
        self._stack.enter_context(self._me.subscribe(self._on_envelope))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stack.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_envelope(self, envelope: Envelope) -> None:
        if envelope.kind != kinds.REQUEST or envelope.sender == self._me.id:
            return
        method = envelope.payload.get("method")
        if (envelope.to and self._me.id not in envelope.to) or (self._ignore is not None and self._ignore(envelope)):
            return
        if method == CANCELLED:
            for task, request in self._tasks.items():
                if request.sender == envelope.sender and request.id in envelope.correlation_id:
                    task.cancel()
        elif method == LIST_TOOLS or (
            method == CALL_TOOL and (len(envelope.to) == 1 or tool_of(envelope) in self._tools)
        ):
            task = asyncio.create_task(self._answer(envelope))
            self._tasks[task] = envelope
            task.add_done_callback(self._tasks.pop)

    async def _answer(self, request: Envelope) -> None:
        try:
            result: Any
            if request.payload.get("method") == LIST_TOOLS:
                result, error = {"tools": [_mcp_tool(tool.definition) for tool in self._tools.values()]}, None
            else:
                async with self._call_slots:
                    result, error = await self._call(request)
            try:
                await self._me.respond(request, result, error=error)
            except Refused as refused:  # the result is too large, for example; the caller must not wait for ever
                message = f"the result was refused: {refused.info.message}"
                await self._me.respond(request, error={"code": _INTERNAL_ERROR, "message": message})
        except PellucidError as error:
            log.warning("a request in a space could not be answered: %s", error.info.code or error.info.kind)

    async def _call(self, request: Envelope) -> tuple[Any, dict[str, Any] | None]:
        name = tool_of(request)
        if name is None or name not in self._tools:
            return None, {"code": _METHOD_NOT_FOUND, "message": f"there is no tool {name!r} here"}
        arguments = request.payload["params"].get("arguments") or {}
        if not isinstance(arguments, dict):
            return None, {"code": _INVALID_PARAMS, "message": "`arguments` must be an object"}
        call = ToolCallPart(name, arguments, request.id)
        [part] = await call_tools(self._tools, self._options, [call], self._context, FailureCounter())
        failed = isinstance(part, RetryPromptPart) or part.outcome != "success"
        result = tool_result(part.content)
        if isinstance(part.content, dict) and not failed:
            result["structuredContent"] = part.content
        return result | ({"isError": True} if failed else {}), None


def _mcp_tool(tool: Any) -> dict[str, Any]:
    fields = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.parameters_json_schema or {"type": "object"},
    }
    return {name: value for name, value in fields.items() if value is not None}
