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

from .catalogue import EngineError, Model
from .readiness import Readiness, State
from .supervise import Engine


class Message(msgspec.Struct, frozen=True, tag=True):
    """What is said about the engine."""


class Engaged(Message, frozen=True):
    """To a worker: how the engine is."""

    state: State
    url: str = ""
    error: str = ""
    code: str = ""


class Line(Message, frozen=True):
    """To a worker: how many are asked for now, and how many wait, of all workers' requests."""

    running: int
    waiting: int


class Place(Message, frozen=True):
    """To a worker: where one of its requests stands; 0 when its wait is over."""

    of: int
    place: int


class Go(Message, frozen=True):
    """To a worker: this request has its slot."""

    of: int


class Enter(Message, frozen=True):
    """From a worker: a slot for this request."""

    of: int


class Leave(Message, frozen=True):
    """From a worker: this request needs its slot, or its place in the line, no longer."""

    of: int


ToWorker: TypeAlias = Engaged | Line | Place | Go
FromWorker: TypeAlias = Enter | Leave


class Lender:
    """The supervisor's side."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._borrowers: set[Borrower] = set()
        self._telling = asyncio.create_task(self._tell_states())

    def lend(self, send: Callable[[ToWorker], None]) -> Borrower:
        borrower = Borrower(self, send)
        self._borrowers.add(borrower)
        send(self._engaged())
        send(self._line())
        return borrower

    def forget(self, borrower: Borrower) -> None:
        self._borrowers.discard(borrower)

    def tell_line(self) -> None:
        for borrower in self._borrowers:
            borrower.send(self._line())

    def close(self) -> None:
        self._telling.cancel()

    async def _tell_states(self) -> None:
        while True:
            await self.engine.changed()
            for borrower in self._borrowers:
                borrower.send(self._engaged())

    def _engaged(self) -> Engaged:
        engine, info = self.engine, self.engine.error.info if self.engine.error is not None else None
        url = engine.base_url if engine.state == "ready" else ""
        return Engaged(engine.state, url, info.message if info else "", (info.code if info else None) or "")

    def _line(self) -> Line:
        return Line(self.engine.queue.running, self.engine.queue.waiting)


class Borrower:
    """One worker, as the supervisor sees it."""

    def __init__(self, lender: Lender, send: Callable[[ToWorker], None]) -> None:
        self.send = send
        self._lender = lender
        self._queue = lender.engine.queue
        self._places: dict[int, asyncio.Task[None]] = {}
        """Done: it holds a slot."""

    def heard(self, message: FromWorker) -> None:
        if isinstance(message, Enter):
            self._places[message.of] = asyncio.create_task(self._enter(message.of))
        else:
            self._leave(message.of)

    def gone(self) -> None:
        for of in list(self._places):
            self._leave(of)
        self._lender.forget(self)

    async def _enter(self, of: int) -> None:
        try:
            await self._queue.enter(lambda place: self._stands(of, place))
            self.send(Go(of))
        finally:
            self._lender.tell_line()  # also when a turn came to one that had just left, and was handed on

    def _stands(self, of: int, place: int) -> None:
        self.send(Place(of, place))
        self._lender.tell_line()

    def _leave(self, of: int) -> None:
        task = self._places.pop(of, None)
        if task is None:
            return
        if task.done():
            self._queue.leave()
        else:
            task.cancel()
        self._lender.tell_line()


class LentQueue:
    """A worker's side of the line (see `queue.Queue`)."""

    slots = 1

    def __init__(self, send: Callable[[FromWorker], None]) -> None:
        self.waiting = 0
        self._send = send
        self._numbers = itertools.count()
        self._asked: dict[int, tuple[asyncio.Future[None], Callable[[int], None] | None]] = {}
        self._held: list[int] = []
        self._running = 0

    @property
    def running(self) -> int:
        # What was asked for a moment ago is not in what the supervisor said before.
        return max(self._running, len(self._held) + len(self._asked))

    async def enter(self, on_position: Callable[[int], None] | None = None) -> None:
        of, turn = next(self._numbers), asyncio.get_running_loop().create_future()
        self._asked[of] = turn, on_position
        self._send(Enter(of))
        try:
            await turn
        except asyncio.CancelledError:
            self._send(Leave(of))
            raise
        finally:
            del self._asked[of]
        self._held.append(of)

    def leave(self) -> None:
        self._send(Leave(self._held.pop()))  # one slot is as good as another

    def heard(self, message: Line | Place | Go) -> None:
        if isinstance(message, Line):
            self._running, self.waiting = message.running, message.waiting
            return
        turn, on_position = self._asked.get(message.of, (None, None))
        if turn is None or turn.done():
            return  # it left in the same moment
        if isinstance(message, Go):
            turn.set_result(None)
        elif on_position is not None:
            on_position(message.place)


class LentEngine:
    """A worker's engine (see `supervise.Engine`): it is started and stopped by whoever lends it."""

    def __init__(self, model: Model, api_key: str, send: Callable[[FromWorker], None]) -> None:
        self.model = model
        self.api_key = api_key
        self.queue = LentQueue(send)
        self._readiness = Readiness()
        self._readiness.set("starting")
        self._url = ""

    @property
    def state(self) -> State:
        return self._readiness.state

    @property
    def base_url(self) -> str:
        if self.state != "ready":
            raise self._readiness.error or EngineError(f"the embedded engine is {self.state}", "stopped")
        return self._url

    async def ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 (its message says more)
        await self._readiness.ready(timeout)

    async def start(self) -> None:
        """It is started already."""

    async def stop(self) -> None:
        """Others may need it still."""

    def heard(self, message: ToWorker) -> None:
        if not isinstance(message, Engaged):
            self.queue.heard(message)
            return
        self._url = message.url
        self._readiness.error = EngineError(message.error, message.code) if message.error else None
        self._readiness.set(message.state)
