"""A conversation that can call another model at each turn, and the checks of every request that it sends.

* No upstream refuses a request (they are strict, see `strict`).
* A request contains the opaque data and the reasoning of its own upstream only.
* Every complete part of an upstream's own opaque data and reasoning comes back verbatim and in order.
* Visible content (answers, calls and their results, the user's texts) reaches every upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from pellucid.events import Event, PartDeltaEvent, PartStartEvent, ResponseStartEvent
from pellucid.models import Model
from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.profiles import builtin_profiles
from pellucid.run import Minter
from pellucid.runs import LiveRun
from pellucid.settings import ModelCall, ModelSettings, ToolDefinition
from pellucid.upstream import UpstreamClient
from tests.conversations.strict import Act, Block, StrictServer, Upstream
from tests.waiting import LIMIT_SECONDS

TOOLS = (ToolDefinition("look", {"type": "object", "properties": {"at": {"type": "string"}}}),)

_KIND = {"think": ThinkingPart, "sealed": ThinkingPart, "call": ToolCallPart, "text": TextPart}


class Conversation:
    """One history, driven through `LiveRun` over real sockets."""

    def __init__(self, server: StrictServer, transport: UpstreamClient, seed: bytes = b"ids") -> None:
        self.messages: list[ModelMessage] = []
        self.steps: list[str] = []
        """The steps so far, for the message of a failure."""
        self._server = server
        self._transport = transport
        self._mint = Minter(seed)
        self._answers: dict[str, list[list[Block]]] = {}
        """The answers of each upstream in this conversation."""
        self._cut: list[list[Block]] = []
        """The answers that were cut off, or whose calls have no results."""
        self._latest: list[Block] = []
        self._visible_texts: list[str] = []
        self._text_count = 0

    def upstream(self, side: str) -> Upstream:
        """One of the upstreams, for a look at its state."""
        return self._server.upstreams[side]

    # --- steps -------------------------------------------------------------------------------------------------

    def user(self) -> None:
        """Append a user message, also where calls have no results yet."""
        if self.pending_calls:
            self._cut.append(self._latest)
        text = self._new_text("user")
        self.messages.append(ModelRequest([UserPromptPart(f"Here is {text} and that is all.")]))

    @property
    def pending_calls(self) -> list[ToolCallPart]:
        """The complete calls of the last answer."""
        last = self.messages[-1] if self.messages else None
        return [call for call in last.tool_calls if call.complete] if isinstance(last, ModelResponse) else []

    def results(self, *, failed: bool = False, some: int | None = None) -> None:
        """Append results of the last answer's calls, or of the first `some` of them."""
        calls = self.pending_calls
        assert calls
        if some is not None and some < len(calls):
            self._cut.append(self._latest)
            calls = calls[:some]
        parts: list[ToolReturnPart | RetryPromptPart] = []
        for call in calls:
            text = self._new_text("result")
            if failed:
                parts.append(RetryPromptPart(text, call.tool_name, call.tool_call_id))
            else:
                parts.append(ToolReturnPart(call.tool_name, {"found": text}, call.tool_call_id))
            self._visible_texts.append(str(call.args_as_dict()["at"]))
        self.messages.append(ModelRequest(list(parts)))

    def store_and_load(self) -> None:
        """Encode the history as JSON and decode it again."""
        stored = msgspec.json.encode(self.messages)
        self.messages = msgspec.json.decode(stored, type=list[ModelMessage])

    async def turn(self, side: str, act: Act, *, thinking: bool = True) -> None:
        """Call the model of `side`, which does what `act` says."""
        self.steps.append(f"{side}: {', '.join(act.steps)}{' …' if act.cut else ''}{'' if thinking else ' (off)'}")
        upstream = self._server.upstreams[side]
        upstream.next = act
        run = LiveRun(self._model(upstream), self._call(upstream, thinking), self._mint)
        await run.open()
        self._check(upstream, thinking)
        if act.cut:
            await _read_until(run, _last_block_has_begun(upstream.answers[-1], upstream))
            run.cancel()
        else:
            while await run.read() is not None:
                pass
        assert run.run.run_end is not None
        assert run.run.run_end.status == ("cancelled" if act.cut else "completed"), run.run.run_end
        self.messages += run.run.messages
        answer = upstream.answers[-1]
        self._latest = answer
        self._answers.setdefault(side, []).append(answer)
        if act.cut:
            self._cut.append(answer)
        self._visible_texts += [block.text for block in answer if block.kind == "text" and block.whole]

    # --- checks ------------------------------------------------------------------------------------------------

    def _check(self, upstream: Upstream, thinking: bool) -> None:
        raw, received = upstream.raw[-1], upstream.received_canaries
        story = "\n".join(self.steps)
        assert {canary.side for canary in received} <= {upstream.side}, story
        required: set[tuple[int, str]] = set()
        allowed: set[tuple[int, str]] = set()
        for answer in self._answers.get(upstream.side, []):
            returned = upstream.required_canaries([block for block in answer if block.whole], thinking)
            required |= set() if answer in self._cut else returned
            allowed |= returned
        received_pairs = {(canary.number, canary.kind) for canary in received}
        assert required <= received_pairs, f"lost {required - received_pairs}\n{story}"
        assert received_pairs <= allowed, f"too much: {received_pairs - allowed}\n{story}"
        numbers = [canary.number for canary in received]
        assert numbers == sorted(numbers), story
        text = raw.decode()
        for expected_text in self._visible_texts:
            assert expected_text in text, f"{expected_text} did not reach {upstream.side}\n{story}"

    # --- helpers -----------------------------------------------------------------------------------------------

    def _model(self, upstream: Upstream) -> Model:
        row = builtin_profiles()[upstream.row]
        url = f"{self._server.url}/{upstream.side}"
        return Model(upstream.model, row, self._transport, base_url=url, api_key="key")

    def _call(self, upstream: Upstream, thinking: bool) -> ModelCall:
        settings: ModelSettings = {"thinking": "high" if thinking else False}
        return ModelCall(upstream.model, list(self.messages), settings, TOOLS)

    def _new_text(self, source: str) -> str:
        self._text_count += 1
        text = f"said-{source}-{self._text_count}-"
        self._visible_texts.append(text)
        return text


Story: TypeAlias = Callable[[Conversation], Coroutine[Any, Any, None]]
StoryRunner: TypeAlias = Callable[[Story], Conversation]


def _last_block_has_begun(answer: list[Block], upstream: Upstream) -> Callable[[list[Event]], bool]:
    """Whether the last block of an answer that will be cut has begun, as far as this upstream shows it."""
    kind = _KIND[answer[-1].kind]
    expected_parts = sum(_KIND[block.kind] is kind for block in answer)

    def has_begun(events: list[Event]) -> bool:
        if kind is ThinkingPart and not upstream.shows_thought:
            return any(isinstance(event, ResponseStartEvent) for event in events)
        starts = [
            at for at, event in enumerate(events) if isinstance(event, PartStartEvent) and type(event.part) is kind
        ]
        if len(starts) < expected_parts:
            return False
        return kind is ToolCallPart or any(isinstance(event, PartDeltaEvent) for event in events[starts[-1] :])

    return has_begun


async def _read_until(run: LiveRun, has_begun: Callable[[list[Event]], bool]) -> None:
    """Read batches until `has_begun` is true of their events."""
    seen: list[Event] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while not has_begun(seen):
            batch = await run.read()
            assert batch is not None, "the turn ended by itself"
            seen += batch.events
