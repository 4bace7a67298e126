"""Supervises the engine process: starts it, restarts it when it dies, stops it; its state, and the queue for its slots.

* `start` returns at once; `wait_ready` waits. Nothing here blocks the event loop.
* Weights that are not on this machine are fetched first (the state `fetching`), so that a gateway serves meanwhile.
* A process that was ready and died is restarted after a pause, which doubles each time. It gets a new port each time,
  so read `base_url` for each request.
* A failure that a restart cannot fix (missing file or package, unsupported CPU, too little memory) leads to the state
  `failed`, with a message that explains how to fix it. So do several failed starts in a row.
* The child process ends when this process ends for any reason, because its stdin is then closed.

The queue is first in, first out. llama.cpp has a queue, too, but a request that waits there gets no information. Here
the position of a request is known, the length can be limited, and a waiting request can leave without cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..errors import ErrorInfo, PellucidError
from .engine import EngineFailed, EngineReady, EngineSpec
from .fetch import cache_directory
from .model_index import EngineError, LocalError, Model, QueueFull, default_threads, read_data

State = Literal["stopped", "fetching", "starting", "ready", "restarting", "failed"]

FetchWeights: TypeAlias = Callable[[], Awaitable[Path]]
"""Fetches the weight file, and returns its path. Raises `FetchError`."""

_HEALTH_REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class EngineState(ABC):
    """The state of an engine.

    Args:
        location_hint: Appended to the message of a timeout. It states where to look for the cause.
    """

    def __init__(self, location_hint: str = "") -> None:
        self.state: State = "stopped"
        self.error: LocalError | None = None
        """Why the engine failed, or why it is being restarted."""
        self._location_hint = location_hint
        self._changed = asyncio.Event()
        self._wait_error: ErrorInfo | None = None

    @property
    @abstractmethod
    def base_url(self) -> str:
        """The base URL of its OpenAI-dialect API, including `/v1`. Raises `EngineError` while it is not ready."""

    async def check(self) -> None:
        """Check that the engine is ready and answers. It answers at once, also while it generates.

        Raises:
            EngineError: It is not ready.
            OSError: It does not answer correctly.
        """
        port = urlsplit(self.base_url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(_HEALTH_REQUEST)
            status_line = await reader.readline()
        finally:
            writer.close()
        if b" 200 " not in status_line:
            raise ConnectionError("the engine answered its health check with an error")

    def set_state(self, state: State) -> None:
        """Set the state, and wake everything that waits for a change."""
        self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def end_waits(self, error: ErrorInfo) -> None:
        """End every `wait_ready`, those in progress and later ones, with an error: the process is stopping."""
        self._wait_error = error
        self.set_state(self.state)

    async def wait_changed(self) -> None:
        """Wait until the state is set again."""
        await self._changed.wait()

    async def wait_ready(self, timeout_seconds: float | None = None) -> None:
        """Wait until requests can be sent.

        Args:
            timeout_seconds: The longest wait. None: no limit.

        Raises:
            LocalError: It failed, is stopped, or was not ready in time.
            PellucidError: The error of `end_waits`.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.state != "ready":
                    if self.state == "failed" and self.error:
                        raise self.error
                    if self.state == "stopped":
                        raise EngineError("the embedded engine is not started", "stopped")
                    if self._wait_error is not None:
                        raise PellucidError(self._wait_error)
                    await self._changed.wait()
        except TimeoutError:
            raise EngineError(
                f"the embedded engine was not ready after {timeout_seconds} seconds "
                f"(state: {self.state}{self._location_hint})",
                "timeout",
            ) from self.error


class EngineQueue:
    """A first-in, first-out queue for the slots of an engine.

    Args:
        slots: Requests that may run at the same time.
        max_waiting: Requests that may wait. None: no limit.
    """

    def __init__(self, slots: int = 1, max_waiting: int | None = None) -> None:
        self.slots = slots
        self.max_waiting = max_waiting
        self.running = 0
        self._waiters: list[_Waiter] = []

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._waiters)

    async def acquire(self, on_position: Callable[[int], None] | None = None) -> None:
        """Acquire a slot, after waiting for it if necessary. The caller must call `release` later.

        Cancelling removes the request from the queue.

        Args:
            on_position: Called with the position in the queue (1 is the next) whenever it changes, and with 0 when the
                wait is over. It is not called if there is no wait.

        Raises:
            QueueFull: The maximum number of requests is waiting.
        """
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
            if not waiter.grant.cancelled():  # the slot was granted at the same moment: pass it on
                self.release()
            elif waiter in self._waiters:  # otherwise `release` has removed it at the same moment
                self._waiters.remove(waiter)
                self._report_positions()
            raise
        if on_position:
            on_position(0)

    def release(self) -> None:
        """Release a slot."""
        # The slot goes directly to the next request in the queue, so that a new request cannot take it first.
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.grant.done():
                waiter.grant.set_result(None)
                self._report_positions()
                return
        self.running -= 1

    def _report_positions(self) -> None:
        for position, waiter in enumerate(self._waiters, 1):
            waiter.report_position(position)


class _Waiter:
    """A request that waits in the queue."""

    def __init__(self, on_position: Callable[[int], None] | None) -> None:
        self.grant: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_position = on_position
        self.reported_position = 0

    def report_position(self, position: int) -> None:
        """Report the position in the queue, if it has changed."""
        if position != self.reported_position:
            self.reported_position = position
            if self.on_position:
                self.on_position(position)


_HANDSHAKE_DECODER: msgspec.json.Decoder[EngineReady | EngineFailed] = msgspec.json.Decoder(EngineReady | EngineFailed)
_MAX_LOG_BYTES = 1 << 20


class Engine(EngineState):
    """The embedded engine, in a supervised child process.

    As an async context manager, it starts on entry and stops on exit.

    Args:
        model: The model.
        weights: Its weight file, or what fetches it when the engine starts.
        threads: Threads of llama.cpp. By default, one less than there are CPU cores.
        context: The size of the context, in tokens. By default, that of the model.
        slots: Requests that are processed at the same time.
        max_waiting: Requests that may wait. None: no limit.
        template: A file with a chat template, instead of the model's.
        log: The file for llama.cpp's log. By default, in the cache directory.
        command: The command line of the child process (for tests).
        first_pause_seconds: The pause before the first restart (for tests).
        max_pause_seconds: The longest pause before a restart.
        max_attempts: Failed starts in a row before the engine fails (for tests).
    """

    def __init__(
        self,
        model: Model,
        weights: Path | FetchWeights,
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
        self.log = log or cache_directory() / "logs" / "engine.log"
        super().__init__(f"; log: {self.log}")
        self.model = model
        self.api_key = secrets.token_urlsafe(24)
        self.queue = EngineQueue(slots, max_waiting)
        """The queue for this engine. Hold a slot for the duration of a request."""
        self.restarts = 0
        """How many times it died after it had been ready."""
        template_text = (
            template.read_text("utf-8") if template else read_data(model.template) if model.template else None
        )
        self._spec = EngineSpec(
            path=str(weights),
            name=model.name,
            api_key=self.api_key,
            context=context or model.context,
            threads=threads or default_threads(),
            slots=slots,
            template=template_text,
            memory=model.memory,
            log=str(self.log),
        )
        self._fetch = None if isinstance(weights, Path) else weights
        self._command = list(command or (sys.executable, "-m", "pellucid.local.engine"))
        self._first_pause_seconds = first_pause_seconds
        self._max_pause_seconds = max_pause_seconds
        self._max_attempts = max_attempts
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def base_url(self) -> str:
        """The base URL of its OpenAI-dialect API, including `/v1`. Raises `EngineError` while it is not ready."""
        if self.state != "ready":
            raise self.error or EngineError(f"the embedded engine is {self.state}; call wait_ready() first", "stopped")
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def pid(self) -> int | None:
        """The process id of the child process; None if it is not running."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the engine, without waiting until it is ready. Does nothing if it is started already."""
        if self._task is None or self._task.done():
            self.error = None
            self.set_state("starting" if self._fetch is None else "fetching")
            self._task = asyncio.create_task(self._run(), name="embedded engine")

    async def stop(self) -> None:
        """Stop the child process and wait until it has ended. Requests that are running fail."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.wait({task})
        self.set_state("stopped")

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _run(self) -> None:
        try:
            await self._fetch_weights()
            await self._keep_running()
        except Exception as error:
            if isinstance(error, LocalError):
                self.error = error
            else:  # a defect: those who wait for the engine get an error, too
                self.error = EngineError("the embedded engine failed to start", upstream_message=repr(error))
            self.set_state("failed")
            if self.error is not error:
                raise

    async def _fetch_weights(self) -> None:
        """Fetch the weights, if they are not on this machine. Raises `FetchError`."""
        if self._fetch is not None:
            weights = await self._fetch()
            self._spec, self._fetch = replace(self._spec, path=str(weights)), None
            self.set_state("starting")

    async def _keep_running(self) -> None:
        """Run the child process again and again, until it has failed too often. Raises as `_run_once`."""
        pause_seconds = self._first_pause_seconds
        failures = 0
        while True:
            if await self._run_once():
                self.restarts += 1
                failures = 0
                pause_seconds = self._first_pause_seconds
            else:
                failures += 1
                if failures >= self._max_attempts:
                    self.set_state("failed")
                    return
            self.set_state("restarting")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, self._max_pause_seconds)

    async def _run_once(self) -> bool:
        """Run the child process once, until it ends.

        Returns:
            Whether it was ready for longer than the first pause.

        Raises:
            EngineError: It failed in a way that a restart cannot fix.
        """
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
                self._port, self.error, ready_at = result.port, None, loop.time()
                self.set_state("ready")
            exit_code = await process.wait()
        finally:
            await self._end_process(process)
        exit_error = self.error = self._exit_error(exit_code, was_ready=bool(ready_at))
        if exit_error.info.code == "unsupported_cpu":
            raise exit_error
        # A process that dies just after loading counts as a failed start. Otherwise it would be restarted for ever.
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
            return None  # the process died first: its exit code has the reason

    async def _end_process(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin:
            process.stdin.close()  # asks the process to exit, which it does at once
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
