"""One embedded engine for several worker processes. The supervisor shares it by exchanging messages with them.

* There is one queue for all workers. A worker's request waits in it like a request of the supervisor, and the worker
  receives its position.
* When a worker ends, its slots and its waiting requests are released.
* A restarted engine has another URL. Every worker receives it.

This module does not know the transport of the messages: `send` sends a message, and `receive` is called with each
message that arrives.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from .model_index import EngineError, Model
from .supervisor import Engine, EngineState, State


class WorkerMessage(msgspec.Struct, frozen=True, tag=True):
    """Base class of the messages between the supervisor and its workers."""


class EngineStatus(WorkerMessage, frozen=True):
    """To a worker: the state of the engine."""

    state: State
    url: str = ""
    error: str = ""
    code: str = ""


class QueueLength(WorkerMessage, frozen=True):
    """To a worker: the number of requests that run and that wait, over all workers."""

    running: int
    waiting: int


class QueuePosition(WorkerMessage, frozen=True):
    """To a worker: the position of one of its requests in the queue; 0 when its wait is over."""

    request_id: int
    position: int


class SlotGranted(WorkerMessage, frozen=True):
    """To a worker: the request has a slot."""

    request_id: int


class AcquireSlot(WorkerMessage, frozen=True):
    """From a worker: the request needs a slot."""

    request_id: int


class ReleaseSlot(WorkerMessage, frozen=True):
    """From a worker: the request no longer needs its slot, or its position in the queue."""

    request_id: int


ToWorker: TypeAlias = EngineStatus | QueueLength | QueuePosition | SlotGranted
FromWorker: TypeAlias = AcquireSlot | ReleaseSlot


class EngineServer:
    """The supervisor's side: shares its engine with the workers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._connections: set[WorkerConnection] = set()
        self._publisher = asyncio.create_task(self._publish_states())

    def connect(self, send: Callable[[ToWorker], None]) -> WorkerConnection:
        """Add a worker. It receives the state of the engine and the length of the queue at once.

        Args:
            send: Sends a message to the worker.
        """
        connection = WorkerConnection(self, send)
        self._connections.add(connection)
        send(self._status())
        send(self._queue_length())
        return connection

    def remove(self, connection: WorkerConnection) -> None:
        """Remove a worker that has ended."""
        self._connections.discard(connection)

    def publish_queue_length(self) -> None:
        """Send the length of the queue to all workers."""
        for connection in self._connections:
            connection.send(self._queue_length())

    def close(self) -> None:
        """Stop publishing the state of the engine."""
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
    """The supervisor's side of one worker."""

    def __init__(self, server: EngineServer, send: Callable[[ToWorker], None]) -> None:
        self.send = send
        self._server = server
        self._queue = server.engine.queue
        self._slot_tasks: dict[int, asyncio.Task[None]] = {}
        """By request id. A task that is done holds a slot; one that is not done waits for it."""

    def receive(self, message: FromWorker) -> None:
        """Handle a message of the worker."""
        if isinstance(message, AcquireSlot):
            self._slot_tasks[message.request_id] = asyncio.create_task(self._acquire(message.request_id))
        else:
            self._release(message.request_id)

    def close(self) -> None:
        """Release all slots and waiting requests of a worker that has ended."""
        for request_id in list(self._slot_tasks):
            self._release(request_id)
        self._server.remove(self)

    async def _acquire(self, request_id: int) -> None:
        try:
            await self._queue.acquire(lambda position: self._on_position(request_id, position))
            self.send(SlotGranted(request_id))
        finally:
            # Also when the slot was granted to a request that had just left, and was passed on.
            self._server.publish_queue_length()

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
    """A worker's side of the queue. It has the interface of `supervisor.EngineQueue`."""

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
        """The number of requests that run or wait to be granted, of all workers."""
        # Requests of this moment are not in the last count that the supervisor sent.
        return max(self._running, len(self._held_slots) + len(self._pending))

    async def acquire(self, on_position: Callable[[int], None] | None = None) -> None:
        """Acquire a slot (see `supervisor.EngineQueue.acquire`). The caller must call `release` later."""
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
        """Release a slot."""
        self._send(ReleaseSlot(self._held_slots.pop()))  # slots are interchangeable

    def receive(self, message: QueueLength | QueuePosition | SlotGranted) -> None:
        """Handle a message of the supervisor."""
        if isinstance(message, QueueLength):
            self._running, self.waiting = message.running, message.waiting
            return
        grant, on_position = self._pending.get(message.request_id, (None, None))
        if grant is None or grant.done():
            return  # the request left at the same moment
        if isinstance(message, SlotGranted):
            grant.set_result(None)
        elif on_position is not None:
            on_position(message.position)


class RemoteEngine(EngineState):
    """A worker's view of the engine. It has the interface of `supervisor.Engine`, which starts and stops the engine."""

    def __init__(self, model: Model, api_key: str, send: Callable[[FromWorker], None]) -> None:
        super().__init__()
        self.model = model
        self.api_key = api_key
        self.queue = RemoteQueue(send)
        self.state = "starting"
        self._url = ""

    @property
    def base_url(self) -> str:
        """The base URL of its OpenAI-dialect API, including `/v1`. Raises `EngineError` while it is not ready."""
        if self.state != "ready":
            raise self.error or EngineError(f"the embedded engine is {self.state}", "stopped")
        return self._url

    async def start(self) -> None:
        """Do nothing: the supervisor has started the engine."""

    async def stop(self) -> None:
        """Do nothing: other workers may still use the engine."""

    def receive(self, message: ToWorker) -> None:
        """Handle a message of the supervisor."""
        if not isinstance(message, EngineStatus):
            self.queue.receive(message)
            return
        self._url = message.url
        self.error = EngineError(message.error, message.code) if message.error else None
        self.set_state(message.state)
