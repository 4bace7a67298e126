"""The stage that measures a run: its slot among the concurrent streams of its key, its tokens, and its times.

    slot      acquired when the run opens, released when it is over
    tokens    charged when the run is over, however it ended; those that no provider reported are estimated, and those
              that a model was reading when the client left
    cost      of each turn when it ends, by the prices of the model that answered; it becomes part of the usage
    times     until the first reasoning, until the first text of the answer, and of all reasoning

An observer gets the measurements once, at the end. They contain no text.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from ..conversation import turn_lengths
from ..events import (
    ErrorEvent,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
)
from ..parts import (
    ModelResponsePart,
    Origin,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    Usage,
    json_text,
)
from ..runs import Batch, Stage
from ..settings import ModelCall
from ..storage import UsageCounts
from .access.guard import Guard
from .access.policy import Principal
from .observability import RunMeasurements, RunTelemetry
from .spend import FREE, TokenPrices, cost_nanos, counted_tokens, reasoning_nanos, with_estimates
from .usage_writer import UsageWriter


class CostRecorder:
    """Computes what the turns of one caller cost, and adds them to what it used."""

    def __init__(
        self,
        writer: UsageWriter,
        prices: Callable[[str, Origin], TokenPrices | None],
        principal: Principal,
        model: str,
    ) -> None:
        """Create a recorder.

        Args:
            writer: Stores what is used.
            prices: Returns the prices of a model that answered to a public name (`Catalog.token_prices`).
            principal: The caller.
            model: The public name of the model that is called.
        """
        self._writer = writer
        self._token_prices = prices
        self._principal = principal
        self._model = model
        self.total_nanos: int | None = None
        """The cost so far, estimates included; None: no model that answered has prices."""
        self.exact_nanos: int | None = 0
        """The cost so far; None if it is not exactly known."""
        self.reasoning_nanos: int | None = 0
        """The part of it that is for tokens of reasoning; None if it is not exactly known."""
        self._counts = UsageCounts()

    @property
    def tokens(self) -> Usage:
        """The tokens so far, estimates included."""
        counts = self._counts
        return Usage(counts.input_tokens, counts.output_tokens, counts.reasoning_tokens)

    def add(
        self,
        origin: Origin,
        usage: Usage,
        *,
        input_characters: Callable[[], int],
        characters: int = 0,
        reasoning_characters: int = 0,
        has_failed: bool = False,
    ) -> int | None:
        """Account for one turn.

        Args:
            origin: The model that answered.
            usage: What the provider reported.
            input_characters: Returns the number of characters that the model read.
            characters: Characters that it wrote in all.
            reasoning_characters: How many of these were reasoning.
            has_failed: Whether it ended with an error.

        Returns:
            Its cost in billionths of the currency; None if that is not exactly known, or there are no prices.
        """
        prices = self._token_prices(self._model, origin)
        reported = known = usage.plausible
        if has_failed and known.input_tokens is None and not characters:
            known = Usage(0, 0, 0)  # the provider refused it: that costs nothing, as far as anyone knows
        elif known.output_reasoning_tokens is None and not reasoning_characters:
            known = replace(known, output_reasoning_tokens=0)
        read_characters = input_characters() if known.input_tokens is None else 0
        tokens = with_estimates(known, read_characters, characters, reasoning_characters)
        cost = cost_nanos(prices or FREE, tokens) or 0
        # Tokens of reasoning that are estimated do not matter for the cost, unless they have a price of their own.
        is_exact = prices is not None and reported.input_tokens is not None and cost_nanos(prices, known) is not None
        counts = replace(counted_tokens(tokens), requests=1, cost_nanos=cost, estimated=int(tokens is not known))
        self._counts.add(counts)
        self.exact_nanos = self.exact_nanos + cost if is_exact and self.exact_nanos is not None else None
        reasoning = reasoning_nanos(prices, known) if prices is not None and is_exact else None
        before = self.reasoning_nanos
        self.reasoning_nanos = None if before is None or reasoning is None else before + reasoning
        if prices is not None:
            self.total_nanos = (self.total_nanos or 0) + cost
        self._writer.add(
            self._principal.owner,
            self._principal.key_id,
            self._model,
            origin.deployment,
            counts,
            has_prices=prices is not None,
        )
        return cost if is_exact else None


class MeterStage(Stage):
    """Measures a run of `principal`, and charges its tokens."""

    def __init__(
        self,
        guard: Guard,
        principal: Principal,
        observer: RunTelemetry,
        costs: CostRecorder,
    ) -> None:
        """Create the stage.

        Args:
            guard: Charges tokens, and has the slots of streams.
            principal: The caller.
            observer: Gets the measurements.
            costs: Gets the usage of each turn.
        """
        self._guard = guard
        self._principal = principal
        self._observer = observer
        self._stream_slot = guard.stream_slot(principal) if principal.policy.has_limits else None
        """One of the concurrent streams of the key; None if the key has no limits."""
        self._costs = costs
        self._call: ModelCall | None = None
        """The call of the current turn. None: the last turn has ended."""
        self._origin = observer.model.origin
        """The model that answered in the current turn."""
        self._turn_begin = (0, 0)
        """The characters, and those of reasoning, before the current turn."""
        self._measurements = RunMeasurements()
        self._opened_at = 0.0
        self._thinking_since: float | None = None
        self._is_settled = True
        """Whether the run is accounted for, or has not begun."""

    async def open(self) -> None:
        self._opened_at = time.monotonic()
        if self._stream_slot is not None:
            await self._stream_slot.acquire()

    async def discard(self, *, was_cancelled: bool) -> None:
        if was_cancelled:
            self.on_opened(queued=False)
            self._settle(RunEndEvent("cancelled"))
        elif self._stream_slot is not None:
            await self._stream_slot.release()

    def on_call(self, call: ModelCall) -> None:
        self._call = call

    def on_opened(self, *, queued: bool) -> None:
        self._is_settled = False
        self._observer.on_opened()

    def on_stopping(self) -> None:
        self._observer.on_stopping()

    def process(self, batch: Batch) -> Batch:
        measurements = self._measurements
        for index, event in enumerate(batch.events):
            if type(event) is PartDeltaEvent:
                delta = event.delta
                if type(delta) is ThinkingPartDelta:
                    if delta.content_delta and measurements.first_thought is None:
                        measurements.first_thought = time.monotonic() - self._opened_at
                        self.wants_deltas = False
                elif type(delta) is TextPartDelta and measurements.first_answer is None:
                    measurements.first_answer = time.monotonic() - self._opened_at
                    self.wants_deltas = False
            elif type(event) is PartStartEvent:
                kind = type(event.part)
                self.wants_deltas = (
                    (kind is ThinkingPart and measurements.first_thought is None)
                    or (kind is TextPart and measurements.first_answer is None)
                )  # fmt: skip
            elif type(event) is PartEndEvent:
                self._count_characters(event.part)
            elif type(event) is ItemStartEvent:
                if event.kind == "reasoning":
                    self._thinking_since = time.monotonic()
            elif type(event) is ItemEndEvent:
                if self._thinking_since is not None:
                    measurements.thinking += time.monotonic() - self._thinking_since
                    self._thinking_since = None
            elif type(event) is RunEndEvent:
                batch.events[index] = self._settle(event)
            elif type(event) is ResponseEndEvent:
                batch.events[index] = turn_end = self._end_turn(event)
                self._observer.on_event(turn_end)
            elif isinstance(event, ResponseStartEvent | ErrorEvent):
                if type(event) is ResponseStartEvent:
                    self._origin = event.origin
                self._observer.on_event(event)
        return batch

    def _end_turn(self, end: ResponseEndEvent) -> ResponseEndEvent:
        """Account for a turn. Returns its end, with the cost if that is known."""
        call, self._call = self._call, None
        measurements = self._measurements
        before, reasoning_before = self._turn_begin
        self._turn_begin = (measurements.characters, measurements.reasoning_characters)
        cost = self._costs.add(
            self._origin,
            end.usage,
            input_characters=lambda: _input_characters(call),
            characters=measurements.characters - before,
            reasoning_characters=measurements.reasoning_characters - reasoning_before,
            has_failed=end.finish_reason == "error",
        )
        return end if cost is None else replace(end, usage=replace(end.usage, cost_nanos=cost))

    def _count_characters(self, part: ModelResponsePart) -> None:
        """Add the characters of a part. When it ends, the part holds all that was streamed."""
        measurements = self._measurements
        if isinstance(part, ThinkingPart):
            measurements.characters += len(part.content)
            measurements.reasoning_characters += len(part.content)
        elif isinstance(part, TextPart):
            measurements.characters += len(part.content)
        elif isinstance(part, ToolCallPart):
            measurements.characters += len(part.args if isinstance(part.args, str) else json_text(part.args))

    def _settle(self, end: RunEndEvent) -> RunEndEvent:
        """Account for the run. Returns its end, with the cost if that is known."""
        if self._is_settled:
            return end
        self._is_settled = True
        measurements, costs = self._measurements, self._costs
        if (call := self._call) is not None and end.status == "cancelled":
            # The model was reading when the client left.
            costs.add(self._observer.model.origin, Usage(), input_characters=lambda: _input_characters(call))
        measurements.cost_nanos = costs.total_nanos
        if costs.exact_nanos is not None and costs.total_nanos is not None:
            paid = {"cost_nanos": costs.exact_nanos, "reasoning_cost_nanos": costs.reasoning_nanos}
            end = replace(end, usage=replace(end.usage, **paid))
        measurements.end = end
        measurements.seconds = time.monotonic() - self._opened_at
        self._observer.on_ended(measurements)
        if self._stream_slot is not None:
            self._stream_slot.settle(costs.tokens)
        return end


def _input_characters(call: ModelCall | None) -> int:
    """Return the number of characters that the model reads for a call."""
    return sum(turn_lengths(call.messages)) if call is not None else 0
