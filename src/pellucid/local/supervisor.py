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

from .engine import EngineFailed, EngineReady, EngineSpec
from .fetch import cache_directory
from .model_index import EngineError, Model, QueueFull, default_threads, read_data
from .readiness import Readiness, State


class EngineQueue:
    """``slots`` may run at once; ``limit`` is how many may wait (``None``: any number)."""

    def __init__(self, slots: int = 1, max_waiting: int | None = None) -> None:
        self.slots = slots
        self.max_waiting = max_waiting
        self.running = 0
        self._waiters: list[_Waiter] = []

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiters)

    @asynccontextmanager
    async def slot(self, on_position: Callable[[int], None] | None = None) -> AsyncIterator[None]:
        """Hold a slot, waiting for it if need be.

        ``on_position`` is called with one's place in the line, 1 being the next, whenever it changes, and with 0
        when the wait is over; not at all if there was none. Leaving early (cancellation) closes the gap.
        Raises ``QueueFull``.
        """
        await self.acquire(on_position)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, on_position: Callable[[int], None] | None = None) -> None:
        """Take a slot, as ``place`` does; whoever took one gives it back with ``leave``."""
        if self.running < self.slots and not self._waiters:
            self.running += 1
            return
        if self.max_waiting is not None and len(self._waiters) >= self.max_waiting:
            raise QueueFull(
                f"the embedded model is busy and {len(self._waiters)} requests wait already; try again later"
            )
        waiter = _Waiter(on_position)
        self._waiters.append(waiter)
        self._report_positions()
        try:
            await waiter.grant
        except asyncio.CancelledError:
            if not waiter.grant.cancelled():  # its turn had come in the same moment: hand it on
                self.release()
            elif waiter in self._waiters:  # who left in the same moment has passed over it already
                self._waiters.remove(waiter)
                self._report_positions()
            raise
        if on_position:
            on_position(0)

    def release(self) -> None:
        """Give a slot back."""
        # The slot goes straight to the next in line, so that a newcomer cannot slip in between.
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.grant.done():
                waiter.grant.set_result(None)
                self._report_positions()
                return
        self.running -= 1

    def _report_positions(self) -> None:
        for place, waiter in enumerate(self._waiters, 1):
            waiter.report_position(place)


class _Waiter:
    def __init__(self, on_position: Callable[[int], None] | None) -> None:
        self.grant: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_position = on_position
        self.reported_position = 0

    def report_position(self, place: int) -> None:
        if place != self.reported_position:
            self.reported_position = place
            if self.on_position:
                self.on_position(place)


_HANDSHAKE_DECODER: msgspec.json.Decoder[EngineReady | EngineFailed] = msgspec.json.Decoder(EngineReady | EngineFailed)
_DEFERRED_METRIC = re.compile(rb"^llamacpp:requests_deferred\s+(\d+)", re.MULTILINE)
_MAX_LOG_BYTES = 1 << 20


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
        max_waiting: int | None = None,
        template: Path | None = None,
        log: Path | None = None,
        command: Sequence[str] | None = None,
        first_pause_seconds: float = 0.5,
        max_pause_seconds: float = 30.0,
        max_attempts: int = 5,
    ) -> None:
        self.model = model
        self.api_key = secrets.token_urlsafe(24)
        self.queue = EngineQueue(slots, max_waiting)
        """The line for this engine: hold a place in it for the length of a request."""
        self.log = log or cache_directory() / "logs" / "engine.log"
        self._readiness = Readiness(f"; log: {self.log}")
        self.restarts = 0
        """How often it died after it had been ready."""
        template_text = (
            template.read_text("utf-8") if template else read_data(model.template) if model.template else None
        )
        self._spec = EngineSpec(
            path=str(path),
            name=model.name,
            api_key=self.api_key,
            context=context or model.context,
            threads=threads or default_threads(),
            slots=slots,
            template=template_text,
            memory=model.memory,
            log=str(self.log),
        )
        self._command = list(command or (sys.executable, "-m", "pellucid.local.engine"))
        self._first_pause_seconds = first_pause_seconds
        self._max_pause_seconds = max_pause_seconds
        self._max_attempts = max_attempts
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
            self._set_state("starting")
            self._task = asyncio.create_task(self._run(), name="embedded engine")

    async def wait_ready(self, timeout_seconds: float | None = None) -> None:
        """Wait until requests can be sent, at most ``timeout`` seconds. Raises ``EngineError``."""
        await self._readiness.wait_ready(timeout_seconds)

    async def wait_changed(self) -> None:
        """Wait until its state is set again."""
        await self._readiness.wait_changed()

    async def count_deferred(self) -> int:
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
                match = _DEFERRED_METRIC.search(await reply.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineError("the embedded engine does not tell its queue", upstream_message=repr(error)) from error
        if match is None:
            raise EngineError("the embedded engine does not tell its queue: no requests_deferred in /metrics")
        return int(match[1])

    async def stop(self) -> None:
        """End the child and wait until it is gone. Requests in flight are cut off."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.wait({task})
        self._set_state("stopped")

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _set_state(self, state: State) -> None:
        self._readiness.set_state(state)

    async def _run(self) -> None:
        pause_seconds = self._first_pause_seconds
        failures = 0
        while True:
            try:
                was_ready = await self._run_once()
            except EngineError as error:
                self._readiness.error = error
                self._set_state("failed")
                return
            if was_ready:
                self.restarts += 1
                failures = 0
                pause_seconds = self._first_pause_seconds
            else:
                failures += 1
                if failures >= self._max_attempts:
                    self._set_state("failed")
                    return
            self._set_state("restarting")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, self._max_pause_seconds)

    async def _run_once(self) -> bool:
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
            raise EngineError("the engine's process could not be started", upstream_message=str(error)) from error
        finally:
            self._log_file.close()
        self._process = process
        loop = asyncio.get_running_loop()
        ready_at = 0.0
        try:
            result = await self._handshake(process)
            if isinstance(result, EngineFailed):
                raise EngineError(result.message, result.code, upstream_message=result.upstream_message)
            if result is not None:
                self._port, self._readiness.error, ready_at = result.port, None, loop.time()
                self._set_state("ready")
            exit_code = await process.wait()
        finally:
            await self._end_process(process)
        exit_error = self._readiness.error = self._exit_error(exit_code, was_ready=bool(ready_at))
        if exit_error.info.code == "unsupported_cpu":
            raise exit_error
        # One that dies at once after loading counts as a failure to start, or it would be started for ever.
        return bool(ready_at) and loop.time() - ready_at > self._first_pause_seconds

    async def _handshake(self, process: asyncio.subprocess.Process) -> EngineReady | EngineFailed | None:
        assert process.stdin
        assert process.stdout
        with contextlib.suppress(ConnectionError):
            process.stdin.write(msgspec.json.encode(self._spec) + b"\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        try:
            return _HANDSHAKE_DECODER.decode(line)
        except msgspec.DecodeError:
            return None  # it died first: its exit code tells more

    async def _end_process(self, process: asyncio.subprocess.Process) -> None:
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

    def _exit_error(self, exit_code: int, *, was_ready: bool) -> EngineError:
        when = "while it served" if was_ready else "while it loaded the model"
        if exit_code == -signal.SIGILL:
            return EngineError(
                "this CPU lacks an instruction that the embedded engine's build of llama.cpp uses. "
                "Use another upstream (pellucid serve --provider NAME --upstream URL)",
                "unsupported_cpu",
            )
        if exit_code == -getattr(signal, "SIGKILL", 9):
            return EngineError(
                f"the embedded engine was killed {when}, most likely because memory ran out. "
                "Free some, or choose a smaller model or a shorter context",
                "out_of_memory",
            )
        how = f"with signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
        return EngineError(f"the embedded engine ended {how} {when}; its log is {self.log}")

    def _open_log(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        is_too_long = self.log.exists() and self.log.stat().st_size > _MAX_LOG_BYTES
        self._log_file = self.log.open("wb" if is_too_long else "ab")
