"""What lives as long as the server does, and how a run comes out of it.

`Services` is opened when the server starts and closed when it stops; protocols ask it for models, for tools, for what
was kept, and for runs. They never see who keeps or carries it.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

import msgspec
from opentelemetry.trace import TracerProvider

from ..asgi.streaming import STOPPING
from ..egress import EgressPolicy
from ..envelopes import Envelope, text_of
from ..errors import PellucidError
from ..models import Asked
from ..parts import Usage
from ..relay import Relay, open_relay
from ..run import Mint
from ..runs import LiveRun, NullTurnHandler, RunSource, Stage, TurnHandler
from ..runs.detached import Detached
from ..runs.later import settled
from ..runs.log import unpack
from ..runs.replay import FinishedLog, LiveLog
from ..runs.server_tools import MCPTurnHandler, NamedServers, ServerTurnHandler
from ..runs.stages import SealStage
from ..runs.stored_run import StoreStage
from ..runs.summaries import Spent, SummaryStage, Writer
from ..sealing import Sealer
from ..settings import ModelCall, ToolDefinition
from ..spaces.runtime.compression import Compressor
from ..spaces.runtime.keeper import Pace
from ..spaces.runtime.spaces import Spaces
from ..storage import AlreadyStored, Store, StoredResponse, open_store
from ..telemetry import log, place_of
from ..tools import AnyTool, RunContext, ServerTools, gather
from ..upstream import UpstreamClient
from .access.guard import Guard
from .access.policy import Principal
from .catalog import Catalog
from .config import Config, RecordConfig
from .metered import MeterStage
from .named import functions, mcp_server, recording, seal_keys, summary_writer
from .observe import RequestWatch, Telemetry, exporting, flush
from .space_config import put_spaces

LONGEST_COMPRESSED = 16_000
"""Characters that are read for one such thought, of all that it stands for together."""


def compressor(writer: Writer | None) -> Compressor | None:
    """None: nobody writes here."""
    if writer is None:
        return None

    async def compressed(thoughts: Sequence[Envelope]) -> str:
        each = LONGEST_COMPRESSED // max(1, len(thoughts))
        written = await writer.summary("\n\n".join(text_of(thought)[:each] for thought in thoughts))
        return written.text or ""

    return compressed


SWEEP_SECONDS = 60.0

LOOK_SECONDS = 1.0
"""Between two looks at whether the record is to be signed."""

CANCEL_SECONDS = 20.0
"""How long a cancellation may take to reach its run, on whichever replica."""

LATER_SECONDS = 5.0
"""How long a server that stops waits for what is still to be done for runs that are over."""


class LocalModelService(Asked, Protocol):
    """The embedded model, as the server needs it: it starts, says whether it is ready, and stops."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def ready(self) -> bool: ...


class Services:
    """Raises `ConfigError` and `PellucidError` on `start`, when something that is needed cannot be had."""

    store: Store
    relay: Relay
    guard: Guard
    sealer: Sealer
    detached: Detached
    spaces: Spaces

    def __init__(
        self,
        config: Config,
        local: LocalModelService | None,
        transport: UpstreamClient | None,
        more: Iterable[Asked],
        tracers: TracerProvider | None = None,
    ) -> None:
        self.config = config
        self.local = local
        self.transport = transport or UpstreamClient(config.limits)
        self.catalog = Catalog(config, self.transport, local, more)
        self.writer = summary_writer(config, self.catalog, local)
        self._functions = functions(config)
        self._mcp = [mcp_server(name, server) for name, server in config.tools.mcp.items()]
        self.egress = EgressPolicy(config.egress.allow)
        self._tool_names: set[str] = set()
        """Of the tools that the operator configured."""
        self._tracers = tracers or exporting(config.telemetry)
        self.telemetry = Telemetry(config.telemetry, self.catalog, self._tracers)
        self.leaving = False
        """Whether the server was told to stop, and those who ask `/ready` are to send nobody any more."""
        self._closing: float | None = None
        self._opened = AsyncExitStack()
        self.started = int(time.time())

    # --- the server's life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        async with AsyncExitStack() as opened:
            await self._open(opened)
            self._opened = opened.pop_all()

    async def _open(self, opened: AsyncExitStack) -> None:
        """Each with what closes it: the last first, whichever of them fails."""
        config = self.config
        opened.push_async_callback(asyncio.to_thread, flush, self._tracers)
        opened.push_async_callback(self.transport.aclose)
        keys = seal_keys(config)
        self.sealer = Sealer(keys)
        self.store = await open_store(config.store_url(), recording=recording(config))
        opened.push_async_callback(self.store.aclose)
        recorder = Recorder(self.store, config.record)
        if config.record.enabled:
            opened.push_async_callback(recorder.last)
        self.relay = await open_relay(config.relay_url())
        opened.push_async_callback(self.relay.aclose)
        self.guard = Guard(
            config.access,
            self.store.keys,
            self.relay,
            allow_unauthenticated=config.server.allow_unauthenticated,
            seal_keys=keys,
        )
        opened.push_async_callback(self.guard.aclose)
        await self.guard.start()
        for server in self._mcp:
            opened.push_async_callback(server.aclose)
        opened.push_async_callback(settled, LATER_SECONDS)
        holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self.detached = Detached(self.store, self.relay, holder=holder, lease_seconds=config.relay.lease_seconds)
        self.detached.watch()
        opened.push_async_callback(self._leave)
        await put_spaces(self.store, config.spaces, os.environ)
        self.spaces = Spaces(
            self.store, self.relay, compressor=compressor(self.writer), pace=Pace(roll=config.relay.lease_seconds)
        )
        opened.push_async_callback(self.spaces.aclose)
        await self.spaces.start()
        sweeper = asyncio.create_task(self._sweep())
        opened.callback(sweeper.cancel)
        if config.record.enabled:
            signing = asyncio.create_task(recorder.run())
            opened.callback(signing.cancel)
        if self.local is not None:
            await self.local.start()

    def close(self) -> None:
        """Nothing new is begun from now on, and what is under way has `shutdown_seconds` left."""
        self.leaving = True
        self._closing = time.monotonic()

    def hurry(self) -> None:
        """What runs in the background is not waited for any longer."""
        self.detached.hurry(STOPPING)

    @property
    def closing(self) -> bool:
        return self._closing is not None

    async def stop(self) -> None:
        await self._opened.aclose()

    async def _leave(self) -> None:
        """What runs in the background has what is left of its time."""
        gone = time.monotonic() - self._closing if self._closing is not None else 0.0
        await self.detached.aclose(max(0.0, self.config.server.shutdown_seconds - gone), STOPPING)
        if self.local is not None:
            await self.local.stop()

    async def _sweep(self) -> None:
        """Take away what has expired."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.store.expire(time.time())
            except PellucidError as error:
                log.warning("cannot take away what has expired: %s", error.info.message)
            except Exception as error:
                log.error("a fault while taking away what has expired: %s", place_of(error))

    async def check(self) -> str | None:
        """What is missing for requests to be served; None when all is there."""
        if self.local is not None and not self.local.ready:
            return "the embedded model is loading"
        for part in (self.store, self.relay):
            try:
                async with asyncio.timeout(5):
                    await part.check()
            except TimeoutError:
                return "what is kept cannot be reached"
            except PellucidError as error:
                return error.info.message
        return None

    # --- tools -------------------------------------------------------------------------------------------------

    async def tools_for(self, principal: Principal) -> list[AnyTool]:
        """The server's tools that this principal may use."""
        # A server's list is kept where it came from, until it changes or the server is gone.
        listed = await gather(self._functions, self._mcp) if self._mcp else self._functions
        self._tool_names.update(tool.name for tool in listed)
        return [tool for tool in listed if principal.policy.allows_tool(tool.name)]

    # --- runs --------------------------------------------------------------------------------------------------

    def run(
        self,
        model: Asked,
        call: ModelCall,
        mint: Mint,
        principal: Principal,
        *,
        tools: Sequence[AnyTool] = (),
        servers: NamedServers | None = None,
        seals: bool = False,
        thread: str | None = None,
        summaries: bool = False,
        max_tool_calls: int | None = None,
        stored_as: StoredResponse | None = None,
        watch: RequestWatch,
    ) -> RunSource:
        """A run that whoever serves it drives.

        Args:
            tools: those that are called here.
            servers: MCP servers that the request names; the call and the tools are planned when they are connected.
            stored_as: the row of a response that is stored before its end is shown.
        """
        watched = watch.runs(model, self._tool_names)

        def handler(call: ModelCall, tools: Sequence[AnyTool]) -> TurnHandler:
            if not tools:
                return NullTurnHandler()
            parallel, seconds = call.settings.get("parallel_tool_calls") is not False, self.config.tools.timeout_seconds
            server = ServerTools(tools, timeout=seconds, parallel=parallel, watch=watched.tool)
            return ServerTurnHandler(server, server.names, RunContext(principal.owner, model))

        stages: list[Stage] = []
        if seals:
            stages.append(SealStage(self.sealer.of(principal.owner, thread).seal))
        if summaries and self.writer is not None:
            stages.append(SummaryStage(self.writer, self.config.summaries.seconds, self._spent_by(principal)))
        stages.append(MeterStage(self.guard, principal, watched))
        if stored_as is not None:
            stages.append(StoreStage(stored_as, self.store))
        most = self.config.tools.max_calls
        return LiveRun(
            watched.model,
            call,
            mint,
            handler(call, tools) if servers is None else MCPTurnHandler(servers, handler),
            stages=stages,
            max_tool_calls=min(max_tool_calls or most, most),
            log_faults=True,
        )

    def _spent_by(self, principal: Principal) -> Spent:
        """Whoever has summaries written pays for them, too."""

        async def spent(usage: Usage, characters: int) -> None:
            await self.guard.charge(principal, usage, characters=characters)

        return spent

    def reading(self, row: StoredResponse) -> FinishedLog | LiveLog:
        """What was kept, from its beginning: as it goes on, wherever it is driven, or as it was. `row` with its log."""
        return FinishedLog(unpack(row.log)) if row.finished else self.detached.follow(row)

    async def cancel(self, row: StoredResponse) -> None:
        """Cancel what runs in the background, on whichever replica, and wait until it has ended."""
        await self.detached.cancel(row)
        run = self.detached.follow(row)
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await run.deliver(lambda batch: None)
        except TimeoutError:
            pass  # whoever asks again sees what became of it
        finally:
            await run.stop()

    def expiry(self, principal: Principal) -> float | None:
        """When what is kept now is no longer kept."""
        server, policy = self.config.storage.retention_seconds, principal.policy.retention_seconds
        terms = [seconds for seconds in (server, policy) if seconds is not None]
        term = min(terms, default=math.inf)
        return time.time() + term if term < math.inf else None


class Recorder:
    """Makes checkpoints of what this process recorded: `seconds` after the first of it, or when there are `entries` of
    it; and, as often, of what a replica left that is gone. `run` goes on until it is cancelled; `last` signs what is
    left then."""

    def __init__(self, store: Store, config: RecordConfig) -> None:
        self._record = store.record
        self._config = config
        self._refused = 0

    async def run(self) -> None:
        signed_at = time.monotonic()
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._config.seconds))
            waited = time.monotonic() - signed_at
            if waited >= self._config.seconds or self._record.recording.waiting >= self._config.entries:
                await self._sign()
                signed_at = time.monotonic()

    async def last(self) -> None:
        if self._record.recording.waiting:
            await self._sign()

    async def _sign(self) -> None:
        try:
            done = await self._record.sign()
        except AlreadyStored:
            return  # another replica does it at this moment; what it does not see is for the next time
        except PellucidError as error:
            log.warning("cannot sign the record: %s", error.info.message)
            return
        except Exception as error:
            log.error("a fault while signing the record: %s", place_of(error))
            return
        if done.refused > self._refused:
            log.error(
                "%d chains of the record have an end that was written without this gateway's key, and are not signed; "
                "`pellucid record verify` names them",
                done.refused,
            )
        self._refused = done.refused


class _AnyHeader(msgspec.Struct):
    protocol: str


_any_header = msgspec.json.Decoder(_AnyHeader)


def protocol_of(header: bytes) -> str:
    """In whose protocol a row's header is written; each says it."""
    return _any_header.decode(header).protocol


def definitions(tools: Sequence[AnyTool]) -> list[ToolDefinition]:
    return [tool.definition for tool in tools]
