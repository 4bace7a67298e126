"""The loop of a run as a machine: what happened goes in, what to show and what to do next comes out.

    run = Run(call, mint)
    effects = run.start()                     # [CallModel(call)]
    events, effects = run.feed(decoded)       # as often as the model is read
    events, effects = run.results(returned)   # when effects held a CallTools

The rules it keeps:

* What a model says passes through in order; only items get their public ids here, minted once, and a tool call that
  its provider left without an id gets one.
* A turn that calls tools which the run's owner executes (`server_tools`) is followed by CallTools and then another
  turn; each turn's reasoning is an item of its own. A call of a tool that belongs to the caller ends the run.
* Exactly one RunEnd, last; `cancel` and `fail` reach it from anywhere.

No sockets, no clock, no randomness of its own: ids come from the minter that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from .errors import ErrorInfo
from .events import (
    ErrorEvent,
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    IncompleteReason,
    ItemKind,
    ItemStartEvent,
    ModelEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    RunEndEvent,
    RunStatus,
)
from .fold import Fold
from .parts import ModelRequest, ModelResponse, RetryPromptPart, ToolCallPart, ToolReturnPart, Usage
from .settings import ModelCall

Mint: TypeAlias = Callable[[str], str]
"""`mint("rs")` gives an id with that prefix that was never given before."""

PREFIX_OF: dict[ItemKind, str] = {
    "reasoning": "rs",
    "message": "msg",
    "tool_call": "fc",
    "builtin_tool": "bt",
    "file": "file",
    "compaction": "cmp",
    "opaque": "op",
}
"""The prefix of each kind of item's public id."""


class Minter:
    """Ids from a seed: the same seed gives the same ids in the same order, so that a run can be told again."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._count = 0

    def __call__(self, prefix: str) -> str:
        self._count += 1
        digest = blake2b(self._count.to_bytes(8, "big"), key=self._seed, digest_size=16)
        return f"{prefix}_{digest.hexdigest()}"


# --- effects: what the driver is to do ---------------------------------------------------------------------------


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model; feed what it says."""

    call: ModelCall


class CallTools(msgspec.Struct, frozen=True):
    """Run these functions, then hand all their results to `results`."""

    calls: tuple[ToolCallPart, ...]


Effect: TypeAlias = CallModel | CallTools
Step: TypeAlias = tuple[list[Event], list[Effect]]


class Run:
    """One run, from the first call to RunEnd."""

    def __init__(
        self,
        call: ModelCall,
        mint: Mint,
        *,
        server_tools: frozenset[str] = frozenset(),
        max_tool_calls: int | None = None,
    ) -> None:
        self.call = call
        self.ended: RunEndEvent | None = None
        self._mint = mint
        self._server_tools = server_tools
        self._tool_calls_left = max_tool_calls
        self._fold = Fold()
        self._calls_minted: dict[int, str] = {}
        self._waiting: tuple[ToolCallPart, ...] = ()
        self._callers = False
        self._cancelled = False

    def start(self) -> list[Effect]:
        return [CallModel(self.call)]

    def feed(self, events: list[ModelEvent]) -> Step:
        """What the model said since the last call. One call a read."""
        out: list[Event] = []
        effects: list[Effect] = []
        fold = self._fold.feed
        for event in events:
            told: Event = event
            if isinstance(event, ItemStartEvent):
                told = replace(event, id=self._mint(PREFIX_OF[event.kind]))
            elif isinstance(event, PartStartEvent | PartEndEvent) and isinstance(event.part, ToolCallPart):
                told = self._with_call_id(event, event.part)
            fold(told)
            out.append(told)
            if isinstance(event, ResponseEndEvent):
                self._turn_ended(event, out, effects)
        return out, effects

    def results(self, results: list[ToolReturnPart | RetryPromptPart]) -> Step:
        """What the functions returned; the model is asked again unless the caller's own calls are pending."""
        out: list[Event] = []
        for result in results:
            event = FunctionToolResultEvent(result, self._mint("fco"))
            self._fold.feed(event)
            out.append(event)
        self._waiting = ()
        if self._callers:
            self._end("completed", out)
            return out, []
        history = [*self.call.messages, *self._fold.messages, ModelRequest(list(results))]
        return out, [CallModel(replace(self.call, messages=history))]

    def cancel(self) -> None:
        """Whatever ends the turn under way from now on ends the run as cancelled."""
        self._cancelled = True

    def end(self, error: ErrorInfo | None = None) -> list[Event]:
        """Between turns: end the run now, as cancelled or (with `error`) failed. Nothing if it has ended."""
        out: list[Event] = []
        if self.ended is None:
            self._end("cancelled" if self._cancelled else "failed", out, error=error)
        return out

    @property
    def messages(self) -> list[ModelRequest | ModelResponse]:
        """What the run added to the conversation so far."""
        return self._fold.messages

    @property
    def usage(self) -> Usage:
        return self._fold.usage

    # --- between turns -----------------------------------------------------------------------------------------

    def _turn_ended(self, end: ResponseEndEvent, out: list[Event], effects: list[Effect]) -> None:
        response = self._fold.response
        assert response is not None
        if self._cancelled:
            self._end("cancelled", out)
        elif end.finish_reason == "error":
            error = self._fold.error or ErrorInfo(
                "model_error", "the model's turn ended in an error without saying which"
            )
            self._end("failed", out, error=error)
        elif end.finish_reason == "length":
            self._end("incomplete", out, reason="max_output_tokens")
        elif end.finish_reason == "content_filter":
            self._end("incomplete", out, reason="content_filter")
        else:
            self._call_tools(response, out, effects)

    def _call_tools(self, response: ModelResponse, out: list[Event], effects: list[Effect]) -> None:
        ours = [call for call in response.tool_calls if call.tool_name in self._server_tools]
        self._callers = len(ours) < len(response.tool_calls)
        if not ours:
            self._end("completed", out)
            return
        if self._tool_calls_left is not None:
            if len(ours) > self._tool_calls_left:
                self._end("incomplete", out, reason="max_tool_calls")
                return
            self._tool_calls_left -= len(ours)
        for call in ours:
            event = FunctionToolCallEvent(call)
            self._fold.feed(event)
            out.append(event)
        self._waiting = tuple(ours)
        effects.append(CallTools(self._waiting))

    def _end(
        self,
        status: RunStatus,
        out: list[Event],
        *,
        error: ErrorInfo | None = None,
        reason: IncompleteReason | None = None,
    ) -> None:
        self.ended = RunEndEvent(status, self._fold.usage, error, reason)
        self._fold.feed(self.ended)
        out.append(self.ended)

    def _with_call_id(self, event: PartStartEvent | PartEndEvent, part: ToolCallPart) -> PartStartEvent | PartEndEvent:
        if part.tool_call_id:
            return event
        if isinstance(event, PartStartEvent):
            self._calls_minted[event.index] = self._mint("call")
        return replace(event, part=replace(part, tool_call_id=self._calls_minted[event.index]))


__all__ = ["CallModel", "CallTools", "Effect", "ErrorEvent", "Mint", "Minter", "Run", "Step"]
