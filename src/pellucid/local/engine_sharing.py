"""One embedded engine for several processes: whoever supervises it lends it to workers, by messages.

* There is one line for all. A worker's request stands in it as if it were the supervisor's own, and is told its place.
* What a worker held or waited for comes free when the worker is gone.
* An engine that was restarted has another address; everyone is told.

How messages travel is not known here: `send` is handed in, and what comes is given to `heard`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from .model_index import EngineError, Model
from .readiness import Readiness, State
from .supervisor import Engine


class WorkerMessage(msgspec.Struct, frozen=True, tag=True):
    """What is said about the engine."""


class EngineStatus(WorkerMessage, frozen=True):
    """To a worker: how the engine is."""

    state: State
    url: str = ""
    error: str = ""
    code: str = ""


class QueueLength(WorkerMessage, frozen=True):
    """To a worker: how many are asked for now, and how many wait, of all workers' requests."""

    running: int
    waiting: int


class QueuePosition(WorkerMessage, frozen=True):
    """To a worker: where one of its requests stands; 0 when its wait is over."""

    request_id: int
    position: int


class SlotGranted(WorkerMessage, frozen=True):
    """To a worker: this request has its slot."""

    request_id: int


class AcquireSlot(WorkerMessage, frozen=True):
    """From a worker: a slot for this request."""

    request_id: int


class ReleaseSlot(WorkerMessage, frozen=True):
    """From a worker: this request needs its slot, or its place in the line, no longer."""

    request_id: int


ToWorker: TypeAlias = EngineStatus | QueueLength | QueuePosition | SlotGranted
FromWorker: TypeAlias = AcquireSlot | ReleaseSlot


class EngineServer:
    """The supervisor's side."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._connections: set[WorkerConnection] = set()
        self._publisher = asyncio.create_task(self._publish_states())

    def connect(self, send: Callable[[ToWorker], None]) -> WorkerConnection:
        connection = WorkerConnection(self, send)
        self._connections.add(connection)
        send(self._status())
        send(self._queue_length())
        return connection

    def remove(self, connection: WorkerConnection) -> None:
        self._connections.discard(connection)

    def publish_queue_length(self) -> None:
        for connection in self._connections:
            connection.send(self._queue_length())

    def close(self) -> None:
        self._publisher.cancel()

    async def _publish_states(self) -> None:
        while True:
            await self.engine.wait_changed()
            for connection in self._connections:
                connection.send(self._status())

    def _status(self) -> EngineStatus:
        engine, info = self.engine, self.engine.error.info if self.engine.error is not None else None
        url = engine.base_url if engine.state == "ready" else ""
        return EngineStatus(engine.state, url, info.message if info else "", (info.code if info else None) or "")

    def _queue_length(self) -> QueueLength:
        return QueueLength(self.engine.queue.running, self.engine.queue.waiting)


class WorkerConnection:
    """One worker, as the supervisor sees it."""

    def __init__(self, server: EngineServer, send: Callable[[ToWorker], None]) -> None:
        self.send = send
        self._server = server
        self._queue = server.engine.queue
        self._slot_tasks: dict[int, asyncio.Task[None]] = {}
        """Done: it holds a slot."""

    def receive(self, message: FromWorker) -> None:
        if isinstance(message, AcquireSlot):
            self._slot_tasks[message.request_id] = asyncio.create_task(self._acquire(message.request_id))
        else:
            self._release(message.request_id)

    def close(self) -> None:
        for request_id in list(self._slot_tasks):
            self._release(request_id)
        self._server.remove(self)

    async def _acquire(self, request_id: int) -> None:
        try:
            await self._queue.acquire(lambda place: self._on_position(request_id, place))
            self.send(SlotGranted(request_id))
        finally:
            self._server.publish_queue_length()  # also when a turn came to one that had just left, and was handed on

    def _on_position(self, request_id: int, position: int) -> None:
        self.send(QueuePosition(request_id, position))
        self._server.publish_queue_length()

    def _release(self, request_id: int) -> None:
        task = self._slot_tasks.pop(request_id, None)
        if task is None:
            return
        if task.done():
            self._queue.release()
        else:
            task.cancel()
        self._server.publish_queue_length()


class RemoteQueue:
    """A worker's side of the line (see `queue.Queue`)."""

    slots = 1

    def __init__(self, send: Callable[[FromWorker], None]) -> None:
        self.waiting = 0
        self._send = send
        self._request_ids = itertools.count()
        self._pending: dict[int, tuple[asyncio.Future[None], Callable[[int], None] | None]] = {}
        self._held_slots: list[int] = []
        self._running = 0

    @property
    def running(self) -> int:
        # What was asked for a moment ago is not in what the supervisor said before.
        return max(self._running, len(self._held_slots) + len(self._pending))

    async def acquire(self, on_position: Callable[[int], None] | None = None) -> None:
        request_id, grant = next(self._request_ids), asyncio.get_running_loop().create_future()
        self._pending[request_id] = grant, on_position
        self._send(AcquireSlot(request_id))
        try:
            await grant
        except asyncio.CancelledError:
            self._send(ReleaseSlot(request_id))
            raise
        finally:
            del self._pending[request_id]
        self._held_slots.append(request_id)

    def release(self) -> None:
        self._send(ReleaseSlot(self._held_slots.pop()))  # one slot is as good as another

    def receive(self, message: QueueLength | QueuePosition | SlotGranted) -> None:
        if isinstance(message, QueueLength):
            self._running, self.waiting = message.running, message.waiting
            return
        grant, on_position = self._pending.get(message.request_id, (None, None))
        if grant is None or grant.done():
            return  # it left in the same moment
        if isinstance(message, SlotGranted):
            grant.set_result(None)
        elif on_position is not None:
            on_position(message.position)


class RemoteEngine:
    """A worker's engine (see `supervise.Engine`): it is started and stopped by whoever lends it."""

    def __init__(self, model: Model, api_key: str, send: Callable[[FromWorker], None]) -> None:
        self.model = model
        self.api_key = api_key
        self.queue = RemoteQueue(send)
        self._readiness = Readiness()
        self._readiness.set_state("starting")
        self._url = ""

    @property
    def state(self) -> State:
        return self._readiness.state

    @property
    def base_url(self) -> str:
        if self.state != "ready":
            raise self._readiness.error or EngineError(f"the embedded engine is {self.state}", "stopped")
        return self._url

    async def wait_ready(self, timeout_seconds: float | None = None) -> None:
        await self._readiness.wait_ready(timeout_seconds)

    async def start(self) -> None:
        """It is started already."""

    async def stop(self) -> None:
        """Others may need it still."""

    def receive(self, message: ToWorker) -> None:
        if not isinstance(message, EngineStatus):
            self.queue.receive(message)
            return
        self._url = message.url
        self._readiness.error = EngineError(message.error, message.code) if message.error else None
        self._readiness.set_state(message.state)
