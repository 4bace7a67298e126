"""The loop of a run as a machine: what happened goes in, what to show and what to do next comes out.

    run = Run(call, mint)
    effects = run.start()                     # [CallModel(call)]
    events, effects = run.feed(decoded)       # as often as the model is read
    events, effects = run.results(returned)   # when effects held a CallTools

The rules it keeps:

* What a model says passes through in order; only items get their public ids here, minted once, and a tool call that
  its provider left without an id of its own gets one.
* A turn that calls tools which the run's owner executes (`server_tools`) is followed by CallTools and then another
  turn; each turn's reasoning is an item of its own. A call of a tool that belongs to the caller ends the run.
* A provider that pauses (`finish_reason: pause`) is asked again, with what it said so far.
* With `checks`, an answer is the run's last word only when its owner accepts it (CheckOutput); otherwise the model is
  told what was wrong, and asked again.
* A choice that forces a call is kept only as long as nothing was called, or it would be forced for ever; unless the
  call that is forced may be the answer (`checks`).
* Results answer exactly the calls that were asked for, but for those that are left to whoever asked, which end the
  run; a run that is ended while functions run answers them itself, as failed.
* A run may begin with calls that an earlier one left (`pending`): they are answered before the model is asked.
* Exactly one RunEnd, last; `end` reaches it from anywhere, closing what is open. What comes after it is not heard.

No sockets, no clock, no randomness of its own: ids come from the minter that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from hashlib import blake2b
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from .errors import ErrorInfo, IllegalEvent
from .events import (
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    IncompleteReason,
    ItemEndEvent,
    ItemKind,
    ItemStartEvent,
    ModelEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    RunStatus,
)
from .fold import Fold
from .parts import ModelRequest, ModelResponse, RetryPromptPart, ToolCallPart, ToolReturnPart, Usage
from .settings import ModelCall, ToolChoice

MAX_TURNS = 256
"""How often a model is asked in one run, unless its owner says otherwise: a loop that goes on so long goes nowhere."""

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

    def __init__(self, seed: bytes, at_ms: int | None = None) -> None:
        """`at_ms`: the time in milliseconds since 1970 with which every id begins, so that ids sort by it; without it,
        all digits are random."""
        self._seed = seed
        self._count = 0
        self._time = "" if at_ms is None else f"{at_ms & _TIME_MASK:0{_TIME_DIGITS}x}"

    def __call__(self, prefix: str) -> str:
        self._count += 1
        digest = blake2b(self._count.to_bytes(8, "big"), key=self._seed, digest_size=16)
        return f"{prefix}_{self._time}{digest.hexdigest()[len(self._time) :]}"


_TIME_DIGITS = 12
_TIME_MASK = 16**_TIME_DIGITS - 1
"""48 bits, as in UUIDv7 (RFC 9562, section 5.7); 80 random bits follow."""


# --- effects: what the driver is to do ---------------------------------------------------------------------------


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model; feed what it says."""

    call: ModelCall


class CallTools(msgspec.Struct, frozen=True):
    """Run these functions, then hand all their results to `results`."""

    calls: tuple[ToolCallPart, ...]


class CheckOutput(msgspec.Struct, frozen=True):
    """The model has answered: `accept` it, or `refuse` it with what is wrong."""

    response: ModelResponse


Effect: TypeAlias = CallModel | CallTools | CheckOutput
Step: TypeAlias = tuple[list[Event], list[Effect]]


class Run:
    """One run, from the first call to RunEnd."""

    def __init__(
        self,
        call: ModelCall,
        mint: Mint,
        *,
        server_tools: Container[str] = frozenset(),
        max_tool_calls: int | None = None,
        checks_output: bool = False,
        max_turns: int = MAX_TURNS,
        pending: Sequence[ToolCallPart] = (),
    ) -> None:
        self.call = call
        self.run_end: RunEndEvent | None = None
        self._mint = mint
        self._server_tools = server_tools
        self._checks_output = checks_output
        self._turns_left = max_turns
        self._is_checking = False
        self._tool_calls_left = max_tool_calls
        self._fold = Fold()
        self._item_is_cut_off = False
        """Whether an item of the turn broke off."""
        self._call_ids = {
            tool_call.tool_call_id
            for message in call.messages
            if isinstance(message, ModelResponse)
            for tool_call in message.tool_calls
        }
        """The ids of calls so far, in the whole conversation."""
        self._public_call_id = ""
        self._pending_calls: tuple[ToolCallPart, ...] = tuple(pending)
        self._unsent_events: list[Event] = [FunctionToolCallEvent(call) for call in pending]
        """What was announced before there was anybody to tell."""
        for event in self._unsent_events:
            self._fold.feed(event)
        self._has_caller_calls = False
        self._is_cancelled = False
        self.feed_delta: Callable[[PartDeltaEvent], None] = self._fold.feed_delta
        """`feed` for one delta, as nearly all reads are: it passes unchanged, and has no effects. Not after the end."""
        self.add_text: Callable[[str], None] = self._fold.add_text
        """The same for the texts of many, which went on without events."""

    def start(self) -> list[Effect]:
        return [CallTools(self._pending_calls)] if self._pending_calls else [CallModel(self.call)]

    def feed(self, events: list[ModelEvent]) -> Step:
        """What the model said since the last call. One call a read."""
        out: list[Event] = []
        effects: list[Effect] = []
        if (self._pending_calls or self._is_checking) and events and self.run_end is None:
            raise IllegalEvent("result", "the model goes on while the run waits for results or a word on its answer")
        fold, fold_delta = self._fold.feed, self._fold.feed_delta
        for event in events:
            if self.run_end is not None:
                break
            if type(event) is PartDeltaEvent:
                # Nearly all there is: nothing is asked of it but that it may stand here.
                fold_delta(event)
                out.append(event)
                continue
            public_event = self._with_public_ids(event)
            fold(public_event)
            out.append(public_event)
            if type(public_event) is ItemEndEvent:
                self._item_is_cut_off = self._item_is_cut_off or public_event.status == "incomplete"
            elif type(public_event) is ResponseStartEvent:
                self._item_is_cut_off = False
            elif type(public_event) is ResponseEndEvent:
                self._handle_turn_end(public_event, out, effects)
        return out, effects

    def add_results(
        self,
        results: list[ToolReturnPart | RetryPromptPart],
        *,
        ends_run: bool = False,
        left_to_caller: Collection[str] = frozenset(),
    ) -> Step:
        """What the functions returned; the model is asked again unless the caller's own calls are pending.

        With `last`, one of the calls was the run's answer, and the run is over. `left` are the ids of calls that are
        the caller's after all. Every other call that CallTools asked for has one result, and nothing else has:
        `IllegalEvent` otherwise.
        """
        out: list[Event] = []
        if self.run_end is not None:
            return out, []
        expected, answered = (
            [call.tool_call_id for call in self._pending_calls],
            [result.tool_call_id for result in results],
        )
        if not expected or sorted(expected) != sorted([*answered, *left_to_caller]):
            raise IllegalEvent("result", f"results for the calls {answered}, but the run waits for {expected}")
        out += self._emit_results(results)
        if self._has_caller_calls or self._is_cancelled or ends_run or left_to_caller:
            self._end("cancelled" if self._is_cancelled else "completed", out)
            return out, []
        return out, self._call_model_again(out, ModelRequest(list(results)))

    def accept(self) -> Step:
        """The answer is the run's result."""
        self._finish_check()
        out: list[Event] = []
        self._end("cancelled" if self._is_cancelled else "completed", out)
        return out, []

    def reject(self, prompt: RetryPromptPart) -> Step:
        """The answer will not do; the model is told why and asked again."""
        self._finish_check()
        out: list[Event] = [*self._emit_results([prompt])]
        if self._is_cancelled:
            self._end("cancelled", out)
            return out, []
        return out, self._call_model_again(out, ModelRequest([prompt]))

    def _finish_check(self) -> None:
        if not self._is_checking:
            raise IllegalEvent("result", "there is no answer that waits for a word")
        self._is_checking = False

    def _call_model_again(self, out: list[Event], *new_messages: ModelRequest) -> list[Effect]:
        self._turns_left -= 1
        if self._turns_left <= 0:
            self._end("failed", out, error=ErrorInfo("model_error", "the run took too many turns", code="max_turns"))
            return []
        choice = self.call.tool_choice
        if new_messages and choice.mode == "required" and not self._checks_output:
            choice = ToolChoice()
        messages = [*self.call.messages, *self._fold.messages, *new_messages]
        return [CallModel(replace(self.call, messages=messages, tool_choice=choice))]

    def cancel(self) -> None:
        """Whatever ends the turn under way from now on ends the run as cancelled."""
        self._is_cancelled = True

    def end(self, error: ErrorInfo | None = None) -> list[Event]:
        """End the run now: as failed because of `error`, unless it was cancelled before. Nothing if it has ended.

        A turn that is under way is closed as far as it came; a decoder's own `end` knows more, so it comes first.
        """
        if self.run_end is not None:
            return []
        error = None if self._is_cancelled else error or ErrorInfo("server_error", "the run was ended in the middle")
        message = "The run ended before this function returned."
        unanswered = [
            ToolReturnPart(call.tool_name, message, call.tool_call_id, "failed") for call in self._pending_calls
        ]
        out = self._emit_results(unanswered)  # so that the history can be sent again
        out += self.feed(self._fold.closing_events(error))[0]
        if self.run_end is None:
            self._end("cancelled" if self._is_cancelled else "failed", out, error=error)
        return out

    @property
    def messages(self) -> list[ModelRequest | ModelResponse]:
        """What the run added to the conversation so far."""
        return self._fold.messages

    @property
    def usage(self) -> Usage:
        return self._fold.usage

    def _emit_results(self, results: Sequence[ToolReturnPart | RetryPromptPart]) -> list[Event]:
        self._pending_calls = ()
        out, self._unsent_events = self._unsent_events, []
        for result in results:
            event = FunctionToolResultEvent(result, self._mint("fco"))
            self._fold.feed(event)
            out.append(event)
        return out

    # --- between turns -----------------------------------------------------------------------------------------

    def _handle_turn_end(self, end: ResponseEndEvent, out: list[Event], effects: list[Effect]) -> None:
        response = self._fold.response
        assert response is not None
        if self._is_cancelled:
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
        elif self._item_is_cut_off:
            self._end("failed", out, error=ErrorInfo("model_error", "the model broke off in the middle of an item"))
        elif end.finish_reason == "pause":
            effects += self._call_model_again(out)
        else:
            self._call_tools(response, out, effects)

    def _call_tools(self, response: ModelResponse, out: list[Event], effects: list[Effect]) -> None:
        server_calls = [call for call in response.tool_calls if call.tool_name in self._server_tools]
        self._has_caller_calls = len(server_calls) < len(response.tool_calls)
        if not server_calls:
            if self._checks_output and not response.tool_calls:
                self._is_checking = True
                effects.append(CheckOutput(response))
            else:
                self._end("completed", out)
            return
        if self._tool_calls_left is not None:
            if len(server_calls) > self._tool_calls_left:
                self._end("incomplete", out, reason="max_tool_calls")
                return
            self._tool_calls_left -= len(server_calls)
        for call in server_calls:
            event = FunctionToolCallEvent(call)
            self._fold.feed(event)
            out.append(event)
        self._pending_calls = tuple(server_calls)
        effects.append(CallTools(self._pending_calls))

    def _end(
        self,
        status: RunStatus,
        out: list[Event],
        *,
        error: ErrorInfo | None = None,
        reason: IncompleteReason | None = None,
    ) -> None:
        self.run_end = RunEndEvent(status, self._fold.usage, error, reason)
        self._fold.feed(self.run_end)
        out.append(self.run_end)

    def _with_public_ids(self, event: ModelEvent) -> ModelEvent:
        """The event with its public ids."""
        if type(event) is ItemStartEvent:
            return event if event.id is not None else replace(event, id=self._mint(PREFIX_OF[event.kind]))
        if not isinstance(event, (PartStartEvent, PartEndEvent)) or type(event.part) is not ToolCallPart:
            return event
        call_id = event.part.tool_call_id
        if isinstance(event, PartStartEvent):
            # Two calls under one id could not be answered apart.
            self._public_call_id = call_id if call_id and call_id not in self._call_ids else self._mint("call")
            self._call_ids.add(self._public_call_id)
        return (
            event
            if call_id == self._public_call_id
            else replace(event, part=replace(event.part, tool_call_id=self._public_call_id))
        )
