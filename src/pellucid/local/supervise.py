"""Keep the engine's process running: start it, wait for it, start it again when it dies, stop it.

* ``start`` returns at once; ``ready`` waits. Nothing here blocks the event loop.
* A child that was up and died is started again after a pause that doubles each time (a port is new each time, so
  read ``base_url`` for each request).
* What a restart cannot cure (no such file, no such package, wrong CPU, no memory) ends in the state ``failed`` with
  a message that says what would be right; so do several deaths in a row without one success.
* The child ends with this process, however that ends: it holds the other end of its stdin.

The line in front of the engine: first come, first served, and everyone can see where they stand.

llama.cpp queues too, but a request that waits there hears nothing. Here a wait is visible, bounded if wished, and
costs nothing to give up.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from .catalogue import EngineError, Model, QueueFull, data, default_threads
from .engine import Failed, Ready, Spec
from .fetch import cache_directory
from .readiness import Readiness, State


class Queue:
    """``slots`` may run at once; ``limit`` is how many may wait (``None``: any number)."""

    def __init__(self, slots: int = 1, limit: int | None = None) -> None:
        self.slots = slots
        self.limit = limit
        self.running = 0
        self._line: list[_Waiter] = []

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._line)

    @asynccontextmanager
    async def place(self, on_position: Callable[[int], None] | None = None) -> AsyncIterator[None]:
        """Hold a slot, waiting for it if need be.

        ``on_position`` is called with one's place in the line, 1 being the next, whenever it changes, and with 0
        when the wait is over; not at all if there was none. Leaving early (cancellation) closes the gap.
        Raises ``QueueFull``.
        """
        await self.enter(on_position)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, on_position: Callable[[int], None] | None = None) -> None:
        """Take a slot, as ``place`` does; whoever took one gives it back with ``leave``."""
        if self.running < self.slots and not self._line:
            self.running += 1
            return
        if self.limit is not None and len(self._line) >= self.limit:
            raise QueueFull(f"the embedded model is busy and {len(self._line)} requests wait already; try again later")
        waiter = _Waiter(on_position)
        self._line.append(waiter)
        self._tell()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if not waiter.turn.cancelled():  # its turn had come in the same moment: hand it on
                self.leave()
            elif waiter in self._line:  # who left in the same moment has passed over it already
                self._line.remove(waiter)
                self._tell()
            raise
        if on_position:
            on_position(0)

    def leave(self) -> None:
        """Give a slot back."""
        # The slot goes straight to the next in line, so that a newcomer cannot slip in between.
        while self._line:
            waiter = self._line.pop(0)
            if not waiter.turn.done():
                waiter.turn.set_result(None)
                self._tell()
                return
        self.running -= 1

    def _tell(self) -> None:
        for place, waiter in enumerate(self._line, 1):
            waiter.tell(place)


class _Waiter:
    def __init__(self, on_position: Callable[[int], None] | None) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_position = on_position
        self.told = 0

    def tell(self, place: int) -> None:
        if place != self.told:
            self.told = place
            if self.on_position:
                self.on_position(place)


_SAID: msgspec.json.Decoder[Ready | Failed] = msgspec.json.Decoder(Ready | Failed)
_DEFERRED = re.compile(rb"^llamacpp:requests_deferred\s+(\d+)", re.MULTILINE)
_LOG_BYTES = 1 << 20


class Engine:
    """The embedded engine, supervised.

    ``path`` is the weight file (from ``fetch``). ``threads``, ``context`` (tokens) and ``slots`` default to what
    suits the model and the machine; ``template`` is a chat template file instead of the model's. ``command`` is
    the child's command line, ``first_pause`` and ``attempts`` the restart's patience: for tests.

    As an async context manager it starts on entry and stops on exit.
    """

    def __init__(
        self,
        model: Model,
        path: Path,
        *,
        threads: int | None = None,
        context: int | None = None,
        slots: int = 1,
        waiting: int | None = None,
        template: Path | None = None,
        log: Path | None = None,
        command: Sequence[str] | None = None,
        first_pause: float = 0.5,
        longest_pause: float = 30.0,
        attempts: int = 5,
    ) -> None:
        self.model = model
        self.api_key = secrets.token_urlsafe(24)
        self.queue = Queue(slots, waiting)
        """The line for this engine: hold a place in it for the length of a request."""
        self.log = log or cache_directory() / "logs" / "engine.log"
        self._readiness = Readiness(f"; log: {self.log}")
        self.restarts = 0
        """How often it died after it had been ready."""
        text = template.read_text("utf-8") if template else data(model.template) if model.template else None
        self._spec = Spec(
            path=str(path),
            name=model.name,
            api_key=self.api_key,
            context=context or model.context,
            threads=threads or default_threads(),
            slots=slots,
            template=text,
            memory=model.memory,
            log=str(self.log),
        )
        self._command = list(command or (sys.executable, "-m", "pellucid.local.engine"))
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._attempts = attempts
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        return self._readiness.state

    @property
    def error(self) -> EngineError | None:
        """Why it failed, or why it is being restarted."""
        return self._readiness.error

    @property
    def base_url(self) -> str:
        """The OpenAI-dialect base address, ``/v1`` included. Raises ``EngineError`` while there is none."""
        if self.state != "ready":
            raise self.error or EngineError(f"the embedded engine is {self.state}; wait for ready()", "stopped")
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is a child."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Begin to run the engine; a second call while it runs does nothing."""
        if self._task is None or self._task.done():
            self._readiness.error = None
            self._set("starting")
            self._task = asyncio.create_task(self._run(), name="embedded engine")

    async def ready(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 (its message says more)
        """Wait until requests can be sent, at most ``timeout`` seconds. Raises ``EngineError``."""
        await self._readiness.ready(timeout)

    async def changed(self) -> None:
        """Wait until its state is set again."""
        await self._readiness.changed()

    async def waiting(self) -> int:
        """How many requests llama.cpp itself holds back, those of other processes included.

        Of this process's own, ``queue.waiting`` knows more, and without a question. Raises ``EngineError``.
        """
        import aiohttp  # a large package, which nothing else here needs

        url = self.base_url.removesuffix("/v1") + "/metrics"
        headers = {"Authorization": f"Bearer {self.api_key}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http,
                http.get(url, headers=headers) as reply,
            ):
                found = _DEFERRED.search(await reply.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineError("the embedded engine does not tell its queue", said=repr(error)) from error
        if found is None:
            raise EngineError("the embedded engine does not tell its queue: no requests_deferred in /metrics")
        return int(found[1])

    async def stop(self) -> None:
        """End the child and wait until it is gone. Requests in flight are cut off."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.wait({task})
        self._set("stopped")

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _set(self, state: State) -> None:
        self._readiness.set(state)

    async def _run(self) -> None:
        pause = self._first_pause
        failures = 0
        while True:
            try:
                was_ready = await self._once()
            except EngineError as error:
                self._readiness.error = error
                self._set("failed")
                return
            if was_ready:
                self.restarts += 1
                failures = 0
                pause = self._first_pause
            else:
                failures += 1
                if failures >= self._attempts:
                    self._set("failed")
                    return
            self._set("restarting")
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._longest_pause)

    async def _once(self) -> bool:
        """One life of the child; whether it lasted. Raises what a restart cannot cure."""
        try:
            await asyncio.to_thread(self._open_log)
        except OSError as error:
            raise EngineError(f"the engine's log {self.log} cannot be written: {error.strerror}") from error
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log_file,
            )
        except OSError as error:
            raise EngineError("the engine's process could not be started", said=str(error)) from error
        finally:
            self._log_file.close()
        self._process = process
        loop = asyncio.get_running_loop()
        since = 0.0
        try:
            said = await self._handshake(process)
            if isinstance(said, Failed):
                raise EngineError(said.message, said.code, said=said.said)
            if said is not None:
                self._port, self._readiness.error, since = said.port, None, loop.time()
                self._set("ready")
            code = await process.wait()
        finally:
            await self._end(process)
        death = self._readiness.error = self._death(code, loaded=bool(since))
        if death.info.code == "unsupported_cpu":
            raise death
        # One that dies at once after loading counts as a failure to start, or it would be started for ever.
        return bool(since) and loop.time() - since > self._first_pause

    async def _handshake(self, process: asyncio.subprocess.Process) -> Ready | Failed | None:
        assert process.stdin
        assert process.stdout
        with contextlib.suppress(ConnectionError):
            process.stdin.write(msgspec.json.encode(self._spec) + b"\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        try:
            return _SAID.decode(line)
        except msgspec.DecodeError:
            return None  # it died first: its exit code tells more

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin:
            process.stdin.close()  # the polite way: it exits at once
        if process.returncode is None:
            try:
                async with asyncio.timeout(2):
                    await process.wait()
            except (TimeoutError, asyncio.CancelledError) as error:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                if isinstance(error, asyncio.CancelledError):
                    raise

    def _death(self, code: int, *, loaded: bool) -> EngineError:
        when = "while it served" if loaded else "while it loaded the model"
        if code == -signal.SIGILL:
            return EngineError(
                "this CPU lacks an instruction that the embedded engine's build of llama.cpp uses. "
                "Use another upstream (pellucid serve --provider NAME --upstream URL)",
                "unsupported_cpu",
            )
        if code == -getattr(signal, "SIGKILL", 9):
            return EngineError(
                f"the embedded engine was killed {when}, most likely because memory ran out. "
                "Free some, or choose a smaller model or a shorter context",
                "out_of_memory",
            )
        how = f"with signal {-code}" if code < 0 else f"with exit code {code}"
        return EngineError(f"the embedded engine ended {how} {when}; its log is {self.log}")

    def _open_log(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        long = self.log.exists() and self.log.stat().st_size > _LOG_BYTES
        self._log_file = self.log.open("wb" if long else "ab")
