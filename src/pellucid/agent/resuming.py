"""A conversation that goes on where calls were left: what came of them, and which of them are to be made now."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import RequestError
from ..parts import ModelMessage, ModelRequest, ModelResponse, RetryPromptPart, ToolCallPart, ToolReturnPart
from ..tools import DeferredToolResults


def went_on(
    history: Sequence[ModelMessage], results: DeferredToolResults
) -> tuple[list[ModelMessage], tuple[ToolCallPart, ...]]:
    """The history with the results that came from elsewhere, and the calls of which was said whether they may be made.

    Raises `RequestError` for a call that does not wait.
    """
    if not results.calls and not results.approvals:
        return list(history), ()
    waiting = unanswered(history)
    for id in (*results.calls, *results.approvals):
        if id not in waiting:
            raise RequestError(f"no call with the id {id!r} waits at the end of the conversation", code="no_such_call")
    given = [ToolReturnPart(waiting[id].tool_name, value, id) for id, value in results.calls.items()]
    pending = tuple(call for id, call in waiting.items() if id in results.approvals)
    return [*history, *([ModelRequest([*given])] if given else [])], pending


def unanswered(history: Sequence[ModelMessage]) -> dict[str, ToolCallPart]:
    """The calls of the last turn that have no result yet."""
    waiting: dict[str, ToolCallPart] = {}
    for message in history:
        if isinstance(message, ModelResponse):
            waiting = {call.tool_call_id: call for call in message.tool_calls}
        else:
            for part in message.parts:
                if isinstance(part, ToolReturnPart | RetryPromptPart):
                    waiting.pop(part.tool_call_id, None)
    return waiting
