"""Generated runs, and a relay and a store that fail on demand, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo, PellucidError
from pellucid.events import Event, SideEvent
from pellucid.parts import ModelRequest, OpaquePart, Origin, ToolReturnPart, UserPromptPart
from pellucid.relay import RelayError
from pellucid.relay.memory import MemoryRelay
from pellucid.run import CallModel, CallTools, Minter, Run
from pellucid.settings import ModelCall
from pellucid.storage import Store, StoredResponse, StoreError
from tests.scripted_runs import ScriptedSource

# --- runs ------------------------------------------------------------------------------------------------------------

ODD_VALUES: list[Any] = [
    None, 2**200, -(2**64), float("nan"), float("inf"), 1e-320, b"\xff", "\ud800", {"\udfff": ["\ud83d"]}, {1: {2: 3}},
    object(), {(1, 2): 3}, (1, "two"), {3}, 1 + 2j, True, "", [[[[]]]],
]  # fmt: skip
"""Values that may stand in a provider's own fields, some of which JSON cannot hold."""

_texts = st.sampled_from(["a", "word ", "\ud83e", "\udd14", "\x00", "é\n\n", "%s", '{"x":', "}", "data: [DONE]\n\n"])
_calls = st.lists(
    st.tuples(
        st.sampled_from(["think", "think", "summary", "say", "say", "call", "opaque", "item", "seal", "close", "fail"]),
        st.integers(0, 2),
        _texts,
        st.sampled_from(ODD_VALUES),
    ),
    max_size=12,
)


def _emit(emitter: Emitter, method: str, key: int, text: str, odd: Any) -> None:
    match method:
        case "think":
            emitter.thinking(("k", key), text, item=("i", key))
        case "summary":
            emitter.thinking(("s", key), text, item=("i", key), form="summary", details={"odd": odd})
        case "say":
            emitter.text(("t", key), text)
        case "call":
            emitter.tool_call(("f", key), text, name=f"f{key}", call_id=f"c{key}")
        case "opaque":
            emitter.whole_part(OpaquePart("block", odd))
        case "item":
            emitter.item(("i", key), "reasoning", signature=text, native=odd)
        case "seal":
            emitter.text(("t", key), signature=text, details={"odd": odd})
        case "close":
            emitter.close(("t", key))
            emitter.close(("i", key))
        case "fail" if key == 2:
            emitter.fail(ErrorInfo("model_error", "it broke", "code", native=odd, upstream_message=text))


@st.composite
def batches(draw: st.DrawFn) -> list[list[Event]]:
    """A run in batches; the last event is a `RunEndEvent`."""
    run = Run(ModelCall("m", [ModelRequest([UserPromptPart("Hi")])]), Minter(b"seed"), server_tools={"f0"})
    effects = run.start()
    events: list[Event] = [SideEvent("queue", "place", draw(st.sampled_from(ODD_VALUES)))]
    for _ in range(draw(st.integers(1, 2))):
        if not effects or not isinstance(effects[0], CallModel):
            break
        emitter = Emitter(Origin("p", "w", "m"))
        emitter.start()
        for call in draw(_calls):
            _emit(emitter, *call)
        emitter.finish("stop", None)
        more, effects = run.feed(emitter.end(draw(st.sampled_from(["eof", "error"]))))
        events += more
        if effects and isinstance(effects[0], CallTools):
            more, effects = run.add_results(
                [ToolReturnPart(c.tool_name, "found", c.tool_call_id) for c in effects[0].calls]
            )
            events += more
    events += run.end()
    places = sorted(draw(st.sets(st.integers(0, len(events)), max_size=12)))
    return [events[a:b] for a, b in zip([0, *places], [*places, len(events)], strict=True)]


class GatedSource(ScriptedSource):
    """A source that delivers nothing until an event is set."""

    def __init__(self, batches: list[list[Event]], go: asyncio.Event) -> None:
        super().__init__(batches)
        self._go = go

    async def wait_for_batch(self) -> None:
        await self._go.wait()


def row_of(number: int) -> StoredResponse:
    id = f"resp_{number}"
    return StoredResponse(
        id=id, owner="ann", created_at=1.0, updated_at=1.0, status="in_progress", model="m", background=True
    )


# --- faults ----------------------------------------------------------------------------------------------------------


class FaultyProxy:
    """A proxy of a relay or a table; `fault` decides before and after each call whether it fails."""

    def __init__(self, inner: Any, fault: Callable[[str], bool], error: Callable[[], Exception]) -> None:
        self._inner = inner
        self._fault = fault
        self._error = error

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(real):
            return real

        async def faulty(*args: Any, **more: Any) -> Any:
            if self._fault(name):
                raise self._error()
            await asyncio.sleep(0)
            out = await real(*args, **more)
            if self._fault(name):
                raise self._error()  # the call took effect, but its caller gets an error
            return out

        return faulty


class FaultyRelay(FaultyProxy):
    """A relay whose `append_soon` fails or is delayed as its `append` is."""

    def __init__(self, relay: MemoryRelay, fault: Callable[[str], bool]) -> None:
        super().__init__(relay, fault, lambda: RelayError("not reachable"))
        self._appending: set[asyncio.Task[None]] = set()

    def append_soon(self, *args: Any, done: Callable[[int | PellucidError], None], **more: Any) -> None:
        async def append() -> None:
            try:
                number = await self.append(*args, **more)
            except PellucidError as error:
                done(error)
            else:
                done(number)

        task = asyncio.create_task(append())
        self._appending.add(task)
        task.add_done_callback(self._appending.discard)


class FaultyStore:
    def __init__(self, store: Store, fault: Callable[[str], bool]) -> None:
        self.responses = FaultyProxy(store.responses, fault, StoreError)
        self.conversations = store.conversations


def faulty_relay(relay: MemoryRelay, fault: Callable[[str], bool]) -> Any:
    return FaultyRelay(relay, fault)


def forget_all(relay: MemoryRelay) -> None:
    """Lose all state of the relay, as a restart would."""
    fresh = MemoryRelay()
    for log in relay._logs.values():
        log.is_gone = True
        for follower in list(log.followers):
            follower.fail(RelayError("the run's log no longer exists", code="log_lost"))
    relay._logs, relay._marks, relay._held_leases = fresh._logs, fresh._marks, fresh._held_leases
