"""The agentic loop of a run as a machine: model events go in, public events and the next effects come out.

    run = Run(call, mint)
    effects = run.start()                         # [CallModel(call)]
    events, effects = run.feed(decoded)           # for each read of the model
    events, effects = run.add_results(returned)   # after a CallTools effect

The rules:

* The model's events pass through in order. Only items get their public ids here, assigned once, and a tool call to
  which its provider gave no id gets one.
* A turn that calls tools which the driver executes (`server_tools`) is followed by CallTools and then another turn.
  Each turn's reasoning is an item of its own. A call of a tool of the caller ends the run.
* A provider that pauses (`finish_reason: pause`) is called again with its output so far. So is another deployment of
  the model, if the first broke off in a thought (`models/deployments`).
* With `checks_output`, an answer ends the run only when the driver accepts it (CheckOutput). Otherwise the model
  receives the reason and is called again.
* A tool choice that forces a call applies only until a call was made, or it would force calls for ever; unless the
  forced call may be the answer (`checks_output`).
* Results answer exactly the requested calls, except calls that are left to the caller, which end the run. If a run is
  ended while functions run, it answers their calls itself, as failed.
* A run may begin with calls that an earlier run left (`pending`). They are answered before the model is called.
* Exactly one RunEnd, last. `end` reaches it from any state and closes what is open. Events after it are ignored.

The machine has no sockets, no clock and no randomness: ids come from the `mint` that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from hashlib import blake2b
from typing import Literal, TypeAlias

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
    Mint,
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
"""Default limit of turns in one run: a loop that is longer makes no progress."""

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


RunState: TypeAlias = Literal["waiting", "thinking", "answering", "tools"]
"""What a run does. `waiting`: the model was called, and no item of its output is open. `tools`: it writes calls of
tools, or waits for their results."""

_STATE_OF: dict[ItemKind, RunState] = {"reasoning": "thinking", "tool_call": "tools", "builtin_tool": "tools"}


class Minter:
    """Generator of ids from a seed. The same seed gives the same ids in the same order, so that a run is repeatable."""

    def __init__(self, seed: bytes, at_ms: int | None = None) -> None:
        """Create a generator.

        Args:
            seed: The seed, at most 64 bytes.
            at_ms: The time in milliseconds since 1970 with which every id begins, so that ids sort by it. Without it,
                all digits are random.
        """
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


# --- effects: what the driver does next --------------------------------------------------------------------------


class CallModel(msgspec.Struct, frozen=True):
    """Call the model, and feed its events."""

    call: ModelCall


class CallTools(msgspec.Struct, frozen=True):
    """Run these functions, then pass all their results to `add_results`."""

    calls: tuple[ToolCallPart, ...]


class CheckOutput(msgspec.Struct, frozen=True):
    """Check the model's answer: `accept` it, or `reject` it with the reason."""

    response: ModelResponse


Effect: TypeAlias = CallModel | CallTools | CheckOutput
Step: TypeAlias = tuple[list[Event], list[Effect]]


class Run:
    """One run, from the first call to RunEnd.

    Args:
        call: The first request.
        mint: Makes ids.
        server_tools: Names of the tools that the driver executes.
        max_tool_calls: Limit of calls of server tools; None for no limit.
        checks_output: Whether the driver checks each answer (CheckOutput).
        max_turns: Limit of turns.
        pending: Calls of an earlier run that have no result yet.
    """

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
        """Whether an item of the turn is incomplete."""
        self._call_ids = {
            tool_call.tool_call_id
            for message in call.messages
            if isinstance(message, ModelResponse)
            for tool_call in message.tool_calls
        }
        """The ids of all calls so far in the conversation."""
        self._public_call_id = ""
        self._pending_calls: tuple[ToolCallPart, ...] = tuple(pending)
        self._recorded_results: dict[str, ToolReturnPart | RetryPromptPart] = {}
        """Results of pending calls, which the messages have if the run ends before the others."""
        self._unsent_events: list[Event] = [FunctionToolCallEvent(call) for call in pending]
        """Events that were announced before the first step, which returns them."""
        for event in self._unsent_events:
            self._fold.feed(event)
        self._has_caller_calls = False
        self._is_cancelled = False
        self.feed_delta: Callable[[PartDeltaEvent], None] = self._fold.feed_delta
        """Feed one delta, as nearly all reads are. It passes unchanged, without effects. Not for use after the end."""
        self.add_text: Callable[[str], None] = self._fold.add_text
        """Add the text of several deltas that were delivered without events."""

    def start(self) -> list[Effect]:
        """Return the first effect."""
        return [CallTools(self._pending_calls)] if self._pending_calls else [CallModel(self.call)]

    def feed(self, events: list[ModelEvent]) -> Step:
        """Process the model's events of one read."""
        out: list[Event] = []
        effects: list[Effect] = []
        if (self._pending_calls or self._is_checking) and events and self.run_end is None:
            raise IllegalEvent("result", "the model goes on while the run waits for results or a word on its answer")
        fold, fold_delta = self._fold.feed, self._fold.feed_delta
        for event in events:
            if self.run_end is not None:
                break
            if type(event) is PartDeltaEvent:
                # Nearly all events are deltas: only their order is checked.
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
        """Add the results of the functions. The model is called again unless calls of the caller are pending.

        Args:
            results: One result for each call of the last CallTools that is not in `left_to_caller`.
            ends_run: Whether one of the calls was the run's answer, so that the run ends.
            left_to_caller: Ids of calls that the caller answers after all.

        Raises:
            IllegalEvent: The results do not match the calls.
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

    def record_result(self, result: ToolReturnPart | RetryPromptPart) -> None:
        """Record the result of one pending call, which `add_results` is to add with the others."""
        self._recorded_results[result.tool_call_id] = result

    def accept(self) -> Step:
        """Accept the answer as the run's result."""
        self._finish_check()
        out: list[Event] = []
        self._end("cancelled" if self._is_cancelled else "completed", out)
        return out, []

    def reject(self, prompt: RetryPromptPart) -> Step:
        """Reject the answer. The model receives the reason and is called again."""
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
        """Mark the run as cancelled: when the current turn ends, the run ends as cancelled."""
        self._is_cancelled = True

    def end(self, error: ErrorInfo | None = None) -> list[Event]:
        """End the run now: as failed because of `error`, or as cancelled if it was cancelled before.

        An open turn is closed where it broke off. A decoder's own `end` knows more, so call that first. A run that has
        ended already returns no events.
        """
        if self.run_end is not None:
            return []
        error = None if self._is_cancelled else error or ErrorInfo("server_error", "the run was ended in the middle")
        message = "The run ended before this function returned."
        results = [
            self._recorded_results.get(call.tool_call_id)
            or ToolReturnPart(call.tool_name, message, call.tool_call_id, "failed")
            for call in self._pending_calls
        ]
        out = self._emit_results(results)  # so that the history can be sent again
        out += self.feed(self._fold.closing_events(error))[0]
        if self.run_end is None:
            self._end("cancelled" if self._is_cancelled else "failed", out, error=error)
        return out

    @property
    def messages(self) -> list[ModelRequest | ModelResponse]:
        """The messages that the run has added to the conversation so far."""
        return self._fold.messages

    @property
    def usage(self) -> Usage:
        """The sum over the run's turns so far."""
        return self._fold.usage

    @property
    def characters(self) -> int:
        """Number of characters of the model's output so far, including reasoning and arguments of calls."""
        return self._fold.characters

    @property
    def state(self) -> RunState:
        """What the run does now."""
        item = self._fold.open_item
        if item is None:
            return "tools" if self._pending_calls else "waiting"
        return _STATE_OF.get(item, "answering")

    def _emit_results(self, results: Sequence[ToolReturnPart | RetryPromptPart]) -> list[Event]:
        self._pending_calls = ()
        self._recorded_results.clear()
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
            is_repetition = end.native_finish_reason == "repetition"
            self._end("incomplete", out, reason="repetition" if is_repetition else "max_output_tokens")
        elif end.finish_reason == "content_filter":
            self._end("incomplete", out, reason="content_filter")
        elif end.finish_reason == "pause":
            effects += self._call_model_again(out)
        elif self._item_is_cut_off:
            self._end("failed", out, error=ErrorInfo("model_error", "the model broke off in the middle of an item"))
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
        """Return the event with its public ids."""
        if type(event) is ItemStartEvent:
            return event if event.id is not None else replace(event, id=self._mint(PREFIX_OF[event.kind]))
        if not isinstance(event, (PartStartEvent, PartEndEvent)) or type(event.part) is not ToolCallPart:
            return event
        call_id = event.part.tool_call_id
        if isinstance(event, PartStartEvent):
            # Results of two calls with the same id could not be distinguished.
            self._public_call_id = call_id if call_id and call_id not in self._call_ids else self._mint("call")
            self._call_ids.add(self._public_call_id)
        return (
            event
            if call_id == self._public_call_id
            else replace(event, part=replace(event.part, tool_call_id=self._public_call_id))
        )
