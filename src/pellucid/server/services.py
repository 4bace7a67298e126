"""The services that live as long as the server, and the creation of runs.

`Services` is opened when the server starts and closed when it stops. Endpoints get models, tools, stored data and runs
from it, and do not depend on which database or relay is behind it.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from opentelemetry.trace import TracerProvider

from ..asgi.streaming import STOPPING
from ..background_tasks import wait_for_tasks
from ..data_directory import default_connections
from ..egress import EgressPolicy
from ..envelopes import Envelope, text_of
from ..errors import ErrorInfo, PellucidError, RequestError
from ..models import ChatModel
from ..protocols.chat import ANSWER_PREFIX
from ..relay import MemoryRelay, Relay, open_relay
from ..runs import RunSource
from ..runs.detached_runs import BeginRow, DetachedRuns
from ..runs.model_text import TextUsage, UsageCallback
from ..runs.replay import FinishedLog, LiveLog
from ..runs.run_log import unpack_log
from ..runs.summaries import SummaryWriter
from ..sealing import Keys, Sealer
from ..settings import ToolDefinition
from ..spaces.runtime.compression import Compressor
from ..spaces.runtime.maintenance import Intervals
from ..spaces.runtime.space_manager import SpaceManager
from ..spaces.runtime.webhooks import WebhookDeliveries, WebhookDelivery
from ..storage import AlreadyStored, Store, StoredResponse, open_store
from ..storage.gateway_lock import gateway_lock
from ..storage.store import sqlite_path
from ..telemetry import error_location, log
from ..tools import AnyTool, collect_tools
from ..upstream import UpstreamClient
from .access.budgets import Budgets
from .access.guard import Guard
from .access.policy import Principal
from .catalog import NO_MODEL, Catalog, CatalogState
from .config import Config, RecordConfig
from .connections import ConnectionClients, ConnectionFile, ConnectionSet
from .factories import create_mcp_server, create_seal_key_source, create_summary_writer, load_functions, load_recording
from .feed import Feed, TurnEnded
from .memory import MemoryMark, default_mark_bytes
from .metering import CostRecorder
from .observability import Telemetry, create_tracer_provider, shut_down_tracer_provider
from .readiness import NotReady, Readiness
from .space_config import read_webhooks, store_spaces
from .status import GatewayState
from .usage_writer import UsageWriter

MAX_COMPRESSED_CHARACTERS = 16_000
"""Maximum number of characters that are read to write one compressed thought, over all thoughts that it replaces."""


def make_compressor(writer: SummaryWriter | None, on_usage: UsageCallback | None = None) -> Compressor | None:
    """Return a function that compresses thoughts of a space; None without a writer of summaries.

    Args:
        writer: Writes the summaries.
        on_usage: Is called after each, as that of a `SummaryStage`.
    """
    if writer is None:
        return None

    async def compress(thoughts: Sequence[Envelope]) -> str:
        characters_each = MAX_COMPRESSED_CHARACTERS // max(1, len(thoughts))
        text = "\n\n".join(text_of(thought)[:characters_each] for thought in thoughts)
        return await writer.summarize(text, on_usage) or ""

    return compress


SWEEP_SECONDS = 60.0

CONNECTION_CHECK_SECONDS = 1.0
"""How often the file of connections is checked for changes."""

RECORD_CHECK_SECONDS = 1.0
"""Interval of checks whether the record needs a checkpoint."""

CANCEL_SECONDS = 20.0
"""How long to wait until a cancelled run has ended, on whichever replica."""

TASK_GROUP_SECONDS = 5.0
"""How long a stopping server waits for tasks of runs that are over."""


class LocalModelService(ChatModel, Protocol):
    """The embedded model as the server uses it: it starts, reports whether it is ready, and stops."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def end_waits(self, error: ErrorInfo) -> None: ...

    async def check(self) -> None: ...

    @property
    def is_loading(self) -> bool: ...

    @property
    def is_fetching(self) -> bool: ...


class Stoppable(Protocol):
    """Something of an endpoint that lasts longer than a request."""

    def begin_shutdown(self) -> None:
        """Start nothing new, and end what waits."""

    async def aclose(self) -> None:
        """Release everything, while the store and the relay are still open."""


class Services:
    """The services of one gateway.

    `start` raises `ConfigError` and `PellucidError` when something that is needed is not available.
    """

    store: Store
    relay: Relay
    guard: Guard
    sealer: Sealer
    seal_keys: Callable[[], Keys]
    detached: DetachedRuns
    feed: Feed
    spaces: SpaceManager
    usage_writer: UsageWriter
    state: GatewayState

    def __init__(
        self,
        config: Config,
        local: LocalModelService | None = None,
        upstream_client: UpstreamClient | None = None,
        extra_models: Iterable[ChatModel] = (),
        tracers: TracerProvider | None = None,
        *,
        locks_store: bool = False,
    ) -> None:
        """Create the services.

        Args:
            config: The configuration.
            local: The embedded model, where it is enabled.
            upstream_client: The client for upstream requests; by default a new one.
            extra_models: Models that are served under their own names.
            tracers: Where spans are sent, instead of what the configuration sets.
            locks_store: Whether the file of the store is locked here. `pellucid serve` has locked it for all workers.
        """
        self._locks_store = locks_store
        self.config = config
        self.local = local
        self.upstream_client = upstream_client or UpstreamClient(config.limits)
        self._extra_models = list(extra_models)
        self.connections = ConnectionFile(default_connections(), config)
        """The models that were connected in the page."""
        self._connection_clients = ConnectionClients(config)
        self._connection_set = ConnectionSet()
        self._refreshing = asyncio.Lock()
        self._catalog_state = CatalogState()
        self.catalog = self._create_catalog(self._connection_set)
        """The models now: another catalog after each change of the connections."""
        self.summary_writer = create_summary_writer(config, self.catalog, local)
        self._functions = load_functions(config)
        self._mcp_servers = [create_mcp_server(name, server) for name, server in config.tools.mcp.items()]
        self.egress = EgressPolicy(config.egress.allow)
        self.tool_names: set[str] = set()
        """Names of the tools that the operator configured."""
        self._tracers = tracers or create_tracer_provider(config.telemetry)
        self.telemetry = Telemetry(config.telemetry, lambda name: name in self.catalog, self._tracers)
        self.is_draining = False
        """Whether the server stops, or is about to: `/ready` fails, so that load balancers send no more requests."""
        self.readiness = Readiness(
            {
                "the embedded model does not answer": self._check_engine,
                "the store cannot be read or written": lambda: self.store.check(),
                "the relay does not answer": lambda: self.relay.check(),
                "the default model is not available": self._check_default_model,
                "the memory is used up": self._check_memory,
            }
        )
        mark_bytes = config.server.max_memory_bytes
        self.memory = MemoryMark(default_mark_bytes(config.server.workers) if mark_bytes is None else mark_bytes)
        self.is_started = False
        """Whether `start` has ended."""
        self._closing_since: float | None = None
        self._exit_stack = AsyncExitStack()
        self.stoppables: list[Stoppable] = []
        """What ends with the server, in addition to the services."""
        self.started_at = int(time.time())
        self.replica = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        """The name of this process among the replicas of the gateway."""

    def _create_catalog(self, connected: ConnectionSet) -> Catalog:
        return Catalog(
            self.config,
            self.upstream_client,
            self.local,
            self._extra_models,
            on_failure=lambda failure: self.telemetry.record_deployment_failure(failure),
            connected=connected,
            connection_clients=self._connection_clients,
            state=self._catalog_state,
        )

    async def refresh_connections(self) -> ConnectionSet:
        """Take over the connections as they are in their file now, and return them.

        That is done every `CONNECTION_CHECK_SECONDS`, and when it may matter at once.
        """
        async with self._refreshing:
            if self.connections.has_changed:
                # Both take as long as there are models. Requests go on with the catalog as it was.
                current = await asyncio.to_thread(self.connections.current)
                before = self._connection_set
                if (current.connections, current.default_model) != (before.connections, before.default_model):
                    self.catalog = await asyncio.to_thread(self._create_catalog, current)
                self._connection_set = current
            return self._connection_set

    async def find_model(self, name: str | None) -> tuple[str, ChatModel]:
        """Return the public name and the model, which may have been connected in another process just now.

        Raises:
            RequestError: `model_not_found`.
        """
        try:
            return self.catalog.find(name)
        except RequestError:
            if not self.connections.has_changed:
                raise
        await self.refresh_connections()
        return self.catalog.find(name)

    # --- start and stop ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        async with AsyncExitStack() as exit_stack:
            await self._open(exit_stack)
            self._exit_stack = exit_stack.pop_all()
        self.is_started = True

    async def _open(self, exit_stack: AsyncExitStack) -> None:
        """Open everything, each with the callback that closes it.

        Callbacks run in reverse order, also if one of them fails.
        """
        config = self.config
        for warning in config.warnings:
            log.warning("the configuration: %s", warning)
        exit_stack.push_async_callback(asyncio.to_thread, shut_down_tracer_provider, self._tracers)
        exit_stack.push_async_callback(self.upstream_client.aclose)
        exit_stack.push_async_callback(self._connection_clients.aclose)
        if self._locks_store:
            exit_stack.enter_context(gateway_lock(config.store_url()))
        self.seal_keys = seal_keys = create_seal_key_source(config)
        self.sealer = Sealer(seal_keys)
        self.store = await open_store(config.store_url(), recording=load_recording(config))
        exit_stack.push_async_callback(self.store.aclose)
        self.usage_writer = UsageWriter(self.store.usage, config.spend.currency)
        exit_stack.push_async_callback(self.usage_writer.aclose)
        recorder = CheckpointSigner(self.store, config.record)
        if config.record.enabled:
            exit_stack.push_async_callback(recorder.sign_remaining)
        self.relay = await open_relay(config.relay_url())
        exit_stack.push_async_callback(self.relay.aclose)
        self._catalog_state.share(self.relay)
        exit_stack.push_async_callback(self._catalog_state.aclose)
        await self.refresh_connections()
        self.guard = Guard(
            config.access,
            self.store.keys,
            self.relay,
            revoked_tokens=self.store.revoked_tokens,
            allow_unauthenticated=config.server.allow_unauthenticated,
            seal_keys=seal_keys,
            budgets=Budgets(self.usage_writer, config.access.limits_when_down, config.spend.owners),
            environ=os.environ,
        )
        exit_stack.push_async_callback(self.guard.aclose)
        await self.guard.start()
        for server in self._mcp_servers:
            exit_stack.push_async_callback(server.aclose)
        for agent in self.catalog.agents:
            await exit_stack.enter_async_context(agent.keep_connected())
        exit_stack.push_async_callback(wait_for_tasks, TASK_GROUP_SECONDS)
        self.feed = Feed(self.relay)
        exit_stack.callback(self.feed.end_all)
        self.detached = DetachedRuns(
            self.store,
            self.relay,
            holder=self.replica,
            lease_seconds=config.relay.lease_seconds,
            # One gateway has the lock of an SQLite file, and shares its runs with other processes by the relay alone.
            is_only_driver=isinstance(self.relay, MemoryRelay) and sqlite_path(config.store_url()) is not None,
            on_end=self._announce_end,
        )
        self.detached.start_watching()
        exit_stack.push_async_callback(self._finish_detached_runs)
        self.state = GatewayState(
            replica=self.replica,
            relay=self.relay,
            live_runs=self.telemetry.live_runs,
            get_catalog=lambda: self.catalog,
            local=self.local,
            detached=self.detached,
            readiness=self.readiness,
            is_stopping=lambda: self.is_draining,
            started_at=self.started_at,
            lapse_seconds=config.relay.lease_seconds,
        )
        exit_stack.push_async_callback(self.state.aclose)
        self.state.start()
        await store_spaces(self.store, config.spaces, os.environ)
        self.spaces = SpaceManager(
            self.store,
            self.relay,
            # A space has no key, so the gateway itself pays.
            compressor=make_compressor(self.summary_writer, self.summary_charge(Principal(""))),
            intervals=Intervals(presence_seconds=config.relay.lease_seconds),
        )
        exit_stack.push_async_callback(self.spaces.aclose)
        await self.spaces.start()
        exit_stack.callback(asyncio.create_task(self._follow_connections()).cancel)
        await exit_stack.enter_async_context(WebhookDeliveries(self._webhook_deliveries()))
        for stoppable in self.stoppables:
            exit_stack.push_async_callback(stoppable.aclose)
        exit_stack.callback(asyncio.create_task(self._sweep()).cancel)
        exit_stack.callback(asyncio.create_task(self.memory.watch()).cancel)
        if config.record.enabled:
            exit_stack.callback(asyncio.create_task(recorder.run()).cancel)
        if self.local is not None:
            await self.local.start()

    def _webhook_deliveries(self) -> list[WebhookDelivery]:
        """Return the deliveries of all webhooks. Raises `ConfigError`."""
        return [
            WebhookDelivery(
                webhook,
                self.store.spaces,
                self.relay,
                self.egress,
                holder=self.replica,
                lease_seconds=self.config.relay.lease_seconds,
                observer=self.telemetry,
            )
            for webhook in read_webhooks(self.config.spaces, os.environ)
        ]

    def begin_shutdown(self) -> None:
        """Accept nothing new from now on. Requests and runs in progress have `shutdown_seconds` left."""
        self.is_draining = True
        self._closing_since = time.monotonic()
        if self.local is not None:
            self.local.end_waits(STOPPING)
        self.feed.end_all()
        for stoppable in self.stoppables:
            stoppable.begin_shutdown()

    def stop_detached_runs(self) -> None:
        """Stop waiting for detached runs, and end them."""
        self.detached.stop_all(STOPPING)

    @property
    def is_closing(self) -> bool:
        """Whether nothing new is accepted."""
        return self._closing_since is not None

    async def stop(self) -> None:
        await self._exit_stack.aclose()

    async def _finish_detached_runs(self) -> None:
        """Let detached runs use the rest of the shutdown time, end them, and stop the embedded engine."""
        elapsed_seconds = time.monotonic() - self._closing_since if self._closing_since is not None else 0.0
        await self.detached.aclose(max(0.0, self.config.server.shutdown_seconds - elapsed_seconds), STOPPING)
        if self.local is not None:
            await self.local.stop()

    async def _sweep(self) -> None:
        """Delete expired data, periodically."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.store.expire(time.time())
            except PellucidError as error:
                log.warning("cannot delete expired data: %s", error.info.message)
            except Exception as error:
                log.error("a fault while deleting expired data: %s", error_location(error))

    async def _follow_connections(self) -> None:
        """Take over the changes that other processes make to the connections, and people to their file."""
        while True:
            await asyncio.sleep(CONNECTION_CHECK_SECONDS)
            try:
                await self.refresh_connections()
            except Exception as error:
                log.error("a fault while reading the connections: %s", error_location(error))

    async def _check_memory(self) -> None:
        self.memory.check()

    async def _check_engine(self) -> NotReady | None:
        if self.local is not None:
            if self.local.is_loading:
                step = "being downloaded" if self.local.is_fetching else "loading"
                return NotReady("loading", f"the embedded model is {step}")
            await self.local.check()
        return None

    async def _check_default_model(self) -> NotReady | None:
        if self.catalog.lacks_model:
            return NotReady("unavailable", NO_MODEL)
        if self.catalog.has_default_model():
            return None
        return NotReady("unavailable", "no deployment of the default model is available")

    # --- tools -------------------------------------------------------------------------------------------------

    async def tools_for(self, principal: Principal) -> list[AnyTool]:
        """Return the server's tools that this principal may use."""
        # The object of each MCP server caches its list, until the list changes or the server is gone.
        listed = await collect_tools(self._functions, self._mcp_servers) if self._mcp_servers else self._functions
        self.tool_names.update(tool.name for tool in listed)
        return [tool for tool in listed if principal.policy.allows_tool(tool.name)]

    # --- runs --------------------------------------------------------------------------------------------------

    def summary_charge(self, principal: Principal) -> UsageCallback:
        """Return a function that charges the principal for summaries."""
        return self.charge_for(principal, self.config.summaries.model or (self.local.name if self.local else ""))

    def charge_for(self, principal: Principal, model: str) -> UsageCallback:
        """Return a function that charges the principal for texts which a model writes, by its public name."""

        async def charge(used: TextUsage) -> None:
            costs = self.cost_recorder(principal, model)
            costs.add(
                used.origin,
                used.usage,
                input_characters=lambda: used.read_characters,
                characters=used.written_characters,
            )
            await self.guard.charge(principal, costs.tokens)

        return charge

    def cost_recorder(self, principal: Principal, model: str) -> CostRecorder:
        """Return the recorder of the costs of what the principal uses of a model, by its public name."""
        return CostRecorder(self.usage_writer, self.catalog.token_prices, principal, model)

    async def start_detached(
        self,
        principal: Principal,
        row: StoredResponse,
        run: RunSource,
        begin: BeginRow | None = None,
        *,
        is_client_id: bool = False,
    ) -> None:
        """Start a detached run (see `DetachedRuns.start`).

        Raises:
            PellucidError: The run was not started; also if its key has no free stream.
        """
        # The run acquires its slot when it opens. If none is free, the request fails now, and not the run later.
        async with self.guard.stream_slot(principal):
            pass
        await self.detached.start(row, run, begin=begin, is_client_id=is_client_id)

    def _announce_end(self, row: StoredResponse) -> None:
        if row.conversation_id is not None and row.id.startswith(f"{ANSWER_PREFIX}_"):
            self.feed.publish(row.owner, TurnEnded(conversation_id=row.conversation_id, event_id=row.id))

    def replay(self, row: StoredResponse) -> FinishedLog | LiveLog:
        """Return a source of a stored run, from its beginning: live while it runs, wherever it runs, or finished.

        Args:
            row: The row with its log.
        """
        return FinishedLog(unpack_log(row.log)) if row.is_finished else self.detached.follow(row)

    async def cancel(self, row: StoredResponse) -> None:
        """Cancel a detached run, unless it has ended, on whichever replica, and wait for its end."""
        if row.is_finished:
            return
        await self.detached.cancel(row)
        run = self.detached.follow(row)
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await run.deliver(lambda batch: None)
        except TimeoutError:
            pass  # the next request for the run reports its state
        finally:
            await run.stop()

    async def stop_deleted(self, rows: Iterable[StoredResponse]) -> None:
        """End the runs of rows that were deleted, and drop their logs."""
        await asyncio.gather(*(self._stop_deleted(row) for row in rows))

    async def _stop_deleted(self, row: StoredResponse) -> None:
        try:
            await self.cancel(row)
            await self.detached.drop_log(row)
        except PellucidError as error:
            log.warning("a run of a deleted chat could not be stopped: %s", error.info.message)

    def expires_at(self, principal: Principal) -> float | None:
        """Return when data that is stored now expires, in seconds since 1970; None: never."""
        server, policy = self.config.storage.retention_seconds, principal.policy.retention_seconds
        retentions = [seconds for seconds in (server, policy) if seconds is not None]
        retention = min(retentions, default=math.inf)
        return time.time() + retention if retention < math.inf else None


class CheckpointSigner:
    """Signs checkpoints of what this process recorded.

    It signs when `seconds` have passed since the last checkpoint, or when there are `entries` new entries. At the same
    interval it signs entries that a dead replica left unsigned. `run` continues until it is cancelled;
    `sign_remaining` signs the rest.
    """

    def __init__(self, store: Store, config: RecordConfig) -> None:
        self._record = store.record
        self._config = config
        self._refused_chains = 0

    async def run(self) -> None:
        signed_at = time.monotonic()
        while True:
            await asyncio.sleep(min(RECORD_CHECK_SECONDS, self._config.seconds))
            elapsed_seconds = time.monotonic() - signed_at
            if elapsed_seconds >= self._config.seconds or self._record.recording.unsigned_count >= self._config.entries:
                await self._sign()
                signed_at = time.monotonic()

    async def sign_remaining(self) -> None:
        if self._record.recording.unsigned_count:
            await self._sign()

    async def _sign(self) -> None:
        try:
            result = await self._record.sign()
        except AlreadyStored:
            return  # another replica is signing; what it does not cover is signed next time
        except PellucidError as error:
            log.warning("cannot sign the record: %s", error.info.message)
            return
        except Exception as error:
            log.error("a fault while signing the record: %s", error_location(error))
            return
        if result.refused > self._refused_chains:
            log.error(
                "%d chains of the record end with an entry that was written without this gateway's key, and are not "
                "signed; `pellucid record verify` names them",
                result.refused,
            )
        self._refused_chains = result.refused


def tool_definitions(tools: Sequence[AnyTool]) -> list[ToolDefinition]:
    return [tool.definition for tool in tools]
