"""What goes on: an earlier conversation, and what is said next, as one.

A turn may have called functions of ours and of the caller's. Ours were answered at once, the caller's come with what is
said next: together they are the results of one turn, in the order of its calls, as every provider wants them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from .parts import ModelMessage, ModelRequest, ModelRequestPart, ModelResponse, RetryPromptPart, ToolReturnPart


def joined(*pieces: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The pieces as one conversation: what was said to the model in a row is one request, results first."""
    out: list[ModelMessage] = []
    for message in (message for piece in pieces for message in piece):
        last = out[-1] if out else None
        if isinstance(message, ModelRequest) and isinstance(last, ModelRequest):
            out[-1] = replace(
                last,
                parts=[*last.parts, *message.parts],
                instructions=message.instructions or last.instructions,
            )
        else:
            out.append(message)
    for at in range(1, len(out)):
        said, message = out[at - 1], out[at]
        if isinstance(message, ModelRequest) and isinstance(said, ModelResponse) and len(message.parts) > 1:
            out[at] = replace(message, parts=_results_first(message.parts, said))
    return out


def _results_first(parts: list[ModelRequestPart], said: ModelResponse) -> list[ModelRequestPart]:
    place = {call.tool_call_id: index for index, call in enumerate(said.tool_calls)}
    results = [
        part for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_call_id in place
    ]
    others = [part for part in parts if part not in results]
    return [*sorted(results, key=lambda part: place[part.tool_call_id]), *others]


__all__ = ["joined"]
