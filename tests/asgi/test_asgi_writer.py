"""A stream written with ASGI's `send`, under any server and middleware: complete, in order, and never far ahead of its
client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.asgi import http
from pellucid.asgi.streaming import MAX_BUFFERED, ASGIWriter, BodyWriter, EncodedStream, serve_stream
from pellucid.errors import PellucidError
from pellucid.events import Event, PartDeltaEvent, RunEndEvent, SideEvent
from pellucid.models import ModelEventReceiver, TextReceiver
from pellucid.parts import TextPartDelta
from pellucid.run import Minter
from pellucid.runs import Batch, LiveRun, Stage
from pellucid.server.websocket import MessageWriter, WebSocket
from pellucid.settings import ModelCall
from pellucid.view import Redactor, Viewer
from tests.runs.test_driving import MidAnswer
from tests.scripted_runs import Dice, ScriptedSource
from tests.waiting import eventually, loop_turns

KIB = 1024


class Encoder:
    """Encoder that writes each event as one line of the size in its value."""

    ping = b""

    def start(self, *, queued: bool = False) -> bytes:
        return b"begin\n"

    def feed(self, events: list[Event], now: int) -> bytes:
        return b"".join(map(line_of, events))

    def text_encoder(self) -> None:
        return None


def line_of(event: Event) -> bytes:
    if isinstance(event, SideEvent):
        number, size = event.value
        return b"%d:%b\n" % (number, b"x" * size)
    assert isinstance(event, RunEndEvent)
    return event.status.encode() + b"\n"


def run_of(sizes: list[list[int]]) -> list[list[Event]]:
    """Return the batches of a run whose events have these sizes."""
    numbers = iter(range(10**9))
    batches: list[list[Event]] = [[SideEvent("x", "y", (next(numbers), size)) for size in batch] for batch in sizes]
    return [*batches, [RunEndEvent("completed")]]


def body_of(batches: list[list[Event]]) -> bytes:
    return Encoder().start() + b"".join(line_of(event) for batch in batches for event in batch)


class Server:
    """ASGI server side of a request: `send` is slow, and may fail; `gone` disconnects the client."""

    def __init__(self, pause: Callable[[], Any] | None = None, fails: Exception | None = None, after: int = 0) -> None:
        self.sent: list[bytes] = []
        self.ended = 0
        self.gone = asyncio.Event()
        self._pause = pause
        self._fails = fails
        self._after = after
        self._sending = False

    async def send(self, message: Any) -> None:
        assert message["type"] == "http.response.body"
        assert not self._sending, "two concurrent calls of send"
        assert not self.ended
        self._sending = True
        try:
            if self._pause is not None:
                await self._pause()
            if self._fails is not None and len(self.sent) >= self._after:
                raise self._fails
            self.sent.append(message["body"])
            self.ended += not message["more_body"]
        finally:
            self._sending = False

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}


class Middleware:
    """Middleware that forwards the body in pieces of other sizes."""

    def __init__(self, send: http.Send) -> None:
        self._send = send

    async def __call__(self, message: Any) -> None:
        body = message["body"]
        for start in range(0, max(len(body), 1), 10_000):
            last = start + 10_000 >= len(body)
            more = message["more_body"] or not last
            await self._send({**message, "body": body[start : start + 10_000], "more_body": more})


class Exchange:
    """A request at an ASGI server."""

    def __init__(self, server: Server, *, middleware: bool = False) -> None:
        self.receive: http.Receive = server.receive
        self.send: http.Send = Middleware(server.send) if middleware else server.send

    def on_disconnect(self, callback: Callable[[], None] | None) -> bool:
        return False

    def on_interrupt(self, callback: Callable[[PellucidError], None] | None) -> None:
        pass

    async def stream(self, content_type: str = http.EVENT_STREAM) -> BodyWriter:
        return ASGIWriter(self.send)


async def serve(exchange: Exchange, source: ScriptedSource) -> None:
    async with asyncio.timeout(60):
        await serve_stream(exchange, source, Redactor(Viewer(view="raw")), Encoder())


def slow(dice: Dice) -> Callable[[], Any]:
    return lambda: loop_turns((0, 1, 5, 30)[dice.randint(0, 3)])


sizes = st.lists(
    st.lists(st.sampled_from([0, 1, 100, 20_000, MAX_BUFFERED, MAX_BUFFERED + 1]), max_size=4), max_size=12
)
dice = st.randoms(use_true_random=True)


@given(sizes, dice, st.booleans())
def test_bytes_are_complete_and_in_order(sizes: list[list[int]], dice: random.Random, middleware: bool) -> None:
    async def main() -> None:
        server, batches = Server(slow(dice)), run_of(sizes)
        await serve(Exchange(server, middleware=middleware), ScriptedSource(batches))
        assert b"".join(server.sent) == body_of(batches)
        assert server.ended == 1
        await loop_turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_client_that_does_not_read_pauses_the_source() -> None:
    """When it reads again, it gets the whole stream."""

    async def main() -> None:
        reads = asyncio.Event()
        server, batches = Server(reads.wait), run_of([[4 * KIB]] * 500)
        source = ScriptedSource(batches)
        serving = asyncio.create_task(serve(Exchange(server), source))
        await loop_turns(3000)
        # The bytes that are being sent, those that wait, and the batch that was being encoded.
        assert len(body_of([source.delivered])) <= 2 * MAX_BUFFERED + 3 * 5 * KIB
        before = len(source.delivered)
        await loop_turns(100)
        assert len(source.delivered) == before
        reads.set()
        await serving
        assert b"".join(server.sent) == body_of(batches)
        # Each message was about as large as the buffer's limit, and none far larger.
        assert max(map(len, server.sent)) <= MAX_BUFFERED + 5 * KIB

    asyncio.run(main())


class Broken(Exception):
    pass


@given(sizes, dice, st.integers(0, 5), st.sampled_from([OSError("gone"), ConnectionResetError("gone"), Broken()]))
def test_a_failed_send_stops_the_run(sizes: list[list[int]], dice: random.Random, after: int, error: Exception) -> None:
    """This holds for a paused run, too, and without a disconnect message."""
    unraised: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unraised.append(context))
        server, batches = Server(slow(dice), error, after), run_of([[1], *sizes])
        source = ScriptedSource(batches)
        try:
            await serve(Exchange(server), source)
        except http.ClientGone:
            assert isinstance(error, OSError)
        except Broken:
            assert isinstance(error, Broken)
        else:
            assert server.ended  # the end was sent before the failure
            assert b"".join(server.sent) == body_of(batches)
        assert source.ended is not None
        if not server.ended:
            assert body_of(batches).startswith(b"".join(server.sent))
        await loop_turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert unraised == []


@given(sizes, dice, st.integers(0, 40))
def test_a_disconnect_stops_the_run(sizes: list[list[int]], dice: random.Random, after: int) -> None:
    async def main() -> None:
        server, batches = Server(slow(dice)), run_of(sizes)
        source = ScriptedSource(batches)
        serving = asyncio.create_task(serve(Exchange(server), source))
        await loop_turns(after)
        server.gone.set()
        await serving
        assert source.ended is not None or not source.opened
        assert body_of(batches).startswith(b"".join(server.sent))
        await loop_turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


class Socket:
    """The server's side of a WebSocket."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def send(self, message: Any) -> None:
        assert message["type"] == "websocket.send"
        await self._server.send({"type": "http.response.body", "body": message["text"].encode(), "more_body": True})


@given(sizes, dice, st.none() | st.integers(0, 5))
def test_each_message_of_a_socket_is_a_line(
    sizes: list[list[int]], dice: random.Random, fails_after: int | None
) -> None:
    unraised: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unraised.append(context))
        server = Server(slow(dice), None if fails_after is None else OSError("gone"), fails_after or 0)
        batches = run_of(sizes)
        source, encoder = ScriptedSource(batches), Encoder()
        writer: BodyWriter = MessageWriter(WebSocket(Socket(server)))  # type: ignore[arg-type]
        writer.start(source)
        try:
            await source.deliver(lambda batch: writer.write(encoder.feed(batch.events, 7)))
            await writer.end(b"end\n")
        except http.ClientGone:
            assert fails_after is not None
        else:
            assert server.sent == [*(body_of(batches)[len(b"begin\n") :].splitlines()), b"end"]
        finally:
            writer.close()
        await loop_turns()

    asyncio.run(main())
    assert unraised == []


@pytest.mark.parametrize("writes", [True, False])
def test_written_bytes_are_sent_without_waiting_for_more(writes: bool) -> None:
    async def main() -> None:
        server = Server()
        writer = ASGIWriter(server.send)
        writer.start(ScriptedSource([]))
        if writes:
            writer.write(b"now")
            await eventually(lambda: server.sent == [b"now"])
        await writer.end(b"end")
        assert server.sent == ([b"now"] if writes else []) + [b"end"]
        writer.close()

    asyncio.run(main())


class ManualSourceAndWriter:
    """Writer that records its bytes, and source whose end the test triggers."""

    queued = broken_off = False

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.ends: list[bytes] = []
        self.ended: RunEndEvent | None = None
        self.receive: Callable[[Batch], None]

    def start(self, source: Any) -> None:
        self.delivering = asyncio.get_running_loop().create_future()

    def write(self, data: bytes) -> None:
        self.written.append(data)

    async def end(self, data: bytes) -> None:
        self.ends.append(data)

    def close(self) -> None:
        pass

    async def deliver(self, receive: Callable[[Batch], None], texts: Any = None) -> None:
        self.receive = receive
        await self.delivering

    async def stop(self, error: Any = None) -> None:
        pass

    def finish(self) -> None:
        self.ended = RunEndEvent("completed")
        self.receive(Batch(1, [self.ended]))
        self.delivering.set_result(None)


@pytest.mark.anyio
async def test_a_cancellation_at_the_end_of_the_run_still_sends_its_end() -> None:
    source_and_writer: Any = ManualSourceAndWriter()
    stream = EncodedStream(source_and_writer, Redactor(Viewer(view="raw")), Encoder(), source_and_writer)
    client: Any = SimpleNamespace(has_left=False, interruption=None)
    running = asyncio.create_task(stream.run(client))
    await loop_turns(3)
    source_and_writer.finish()
    running.cancel()
    await running
    assert source_and_writer.ends == [b"completed\n"]


@pytest.mark.anyio
async def test_a_disconnect_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """The run ends without its client, and no error is logged."""

    class Words(MidAnswer):
        def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
            super().start(receive, texts)
            self.more = receive

    class HoldsTheEnd(Stage):
        def process(self, batch: Batch) -> Batch:
            if not batch.events or not isinstance(batch.events[-1], RunEndEvent):
                return batch
            asyncio.get_running_loop().call_soon(self.push, Batch(batch.time_ms, batch.events[-1:]))
            return Batch(batch.time_ms, batch.events[:-1])

    class AnyEncoder(Encoder):
        def feed(self, events: list[Event], now: int) -> bytes:
            return b"x"

    model = Words()
    run = LiveRun(model, ModelCall("m", []), Minter(b"s"), stages=[HoldsTheEnd()])
    exchange = Exchange(Server(fails=OSError("gone")))
    serving = asyncio.create_task(serve_stream(exchange, run, Redactor(Viewer(view="raw")), AnyEncoder()))
    await loop_turns()
    model.more([PartDeltaEvent(0, TextPartDelta(" more"))])
    with pytest.raises(http.ClientGone):
        await serving
    assert run.ended is not None
    assert run.ended.status == "cancelled"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
