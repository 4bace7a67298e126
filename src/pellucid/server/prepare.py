"""Preparation of a request to a model, in any protocol: everything that is looked up before the run.

    model     by its public name; whether this key may use it; the request counts against the key's limits
    viewer    the least of what the key, the model and the request allow
    seals     sealed tokens that the client sent back are opened, and their contents put in their place
    tools     the server's tools in addition to the caller's own, which take precedence if names are equal

Errors are `PellucidError`s with the parameter's name in the protocol. Something that cannot be done, but is no reason
to refuse the request, gives a warning. Stored context from which a request continues (a response, a thread) is the
matter of its endpoint.

A compaction of ours stands for earlier turns. It is sent to a model as a user message, at the beginning, because every
model reads user messages, and many accept no conversation that begins with a message of their own. A compaction that a
provider made is left unchanged: only that provider knows what it contains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence

from msgspec.structs import replace

from ..asgi.http import warning_headers
from ..conversation import join_messages
from ..events import Mint
from ..models import ChatModel
from ..models.deployments import DeployedModel
from ..parts import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    SealedPart,
    ThinkingPart,
    UserPromptPart,
)
from ..protocols.client_protocols import ClientRequest, StatelessRequest
from ..protocols.decoding import invalid
from ..runs import LiveRun, RunSource, TurnHandler
from ..runs.seal_stage import SealStage
from ..runs.server_tools import MCPTurnHandler, RequestServers, ServerTurnHandler
from ..runs.stages import Stage
from ..runs.stored_run import StoreStage
from ..runs.summaries import SummaryStage
from ..sealing import attach, make_opener
from ..settings import ModelCall
from ..storage import StoredResponse
from ..tools import AnyTool, RunContext, ServerToolset
from ..unicode import truncate
from ..view import View, Viewer
from .agent_model import AgentClient, AgentModel, ServerFunctions, unsupported
from .exchange import Exchange
from .metering import MeterStage
from .services import Services, tool_definitions

COMPACTION_PREAMBLE = "Summary of the earlier conversation:\n\n"


def compactions_as_user_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation with our compactions replaced by user messages."""
    return join_messages(*(_split_compactions(message) for message in messages))


def _split_compactions(message: ModelMessage) -> list[ModelMessage]:
    if not isinstance(message, ModelResponse):
        return [message]
    messages: list[ModelMessage] = []
    rest: list[ModelResponsePart] = []
    for part in message.parts:
        if not (isinstance(part, CompactionPart) and part.is_own):
            rest.append(part)
            continue
        if rest:
            messages.append(replace(message, parts=rest))
            rest = []
        messages.append(ModelRequest([UserPromptPart(f"{COMPACTION_PREAMBLE}{part.content}")]))
    if not messages:
        return [message]
    return [*messages, replace(message, parts=rest)] if rest else messages


def _has_thoughts(messages: Sequence[ModelMessage]) -> bool:
    return any(isinstance(part, ThinkingPart) for message in messages for part in message.parts)


class PreparedRequest:
    """One request with all that was looked up. `prepare` creates it."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        request: ClientRequest,
        model_name: str,
        model: ChatModel,
        mint: Mint,
        tools: Sequence[AnyTool],
    ) -> None:
        self.model_name = model_name
        """The model's public name."""
        self.model = model
        self.mint = mint
        self.tools = tools
        """The server's tools that this key may use. An agent has none of them, but its own."""
        self.warnings: list[str] = list(request.warnings)
        """Settings and parts of the request that cannot be honoured."""
        self.request = request
        """The decoded request. It is replaced if what it continues adds to it."""
        self.client = AgentClient(exchange.scope)
        """What the run of an agent gets of its client."""
        self._services = services
        self._exchange = exchange

    @property
    def viewer(self) -> Viewer:
        return self._exchange.viewer

    def unseal(
        self,
        messages: Sequence[ModelMessage],
        *,
        thread_id: str | None = None,
        is_carrier: Callable[[str, str | None, Collection[str]], bool] | None = None,
    ) -> list[ModelMessage]:
        """Return the messages with sealed parts opened.

        Args:
            messages: The messages of the request.
            thread_id: The thread to which the tokens are bound, if any.
            is_carrier: Whether a token may come back on an entity (see `make_opener`).

        Raises:
            SealError: A token is not valid. The error names its place in the request.
        """
        if not any(
            isinstance(p, SealedPart)
            for message in messages
            if isinstance(message, ModelResponse)
            for p in message.parts
        ):
            return list(messages)
        sealer = self._services.sealer.for_tenant(self._exchange.principal.owner, thread_id)
        history = attach(
            messages,
            make_opener(sealer.open, self.request.token_path, is_carrier),
            # Of the key, not of this request, which may ask for less than the one before.
            self._services.catalog.visible_forms(self._exchange.principal.policy.viewer),
        )
        called = self.model.model if isinstance(self.model, AgentModel) else self.model
        if called is not None:
            self.warnings += history.warnings(called.origin)
        return history.messages

    def model_call(self, messages: Sequence[ModelMessage], tools: Sequence[AnyTool] | None = None) -> ModelCall:
        """Return the call of the model.

        Args:
            messages: The conversation.
            tools: Tools in addition to the caller's own; by default the server's.
        """
        call = self.request.call(
            compactions_as_user_messages(messages), tool_definitions(self.tools if tools is None else tools)
        )
        requested = call.settings.get("max_tokens")
        limit = self._exchange.principal.policy.output_token_limit(requested)
        if limit is not None:
            if requested is None and isinstance(self.model, AgentModel):
                limit = min(limit, self.model.max_tokens or limit)
            call = replace(call, settings={**call.settings, "max_tokens": limit})
        is_agent = isinstance(self.model, AgentModel)
        if is_agent or call.settings or call.native_tools or _has_thoughts(call.messages):
            self.warnings += self.model.warnings(call)
        return call

    def stateless_call(self, request: StatelessRequest) -> ModelCall:
        """Return the call of the model for a request that holds the whole conversation. Raises `RequestError`."""
        return self.model_call(self.unseal(request.messages))

    def executable_tools(self, call: ModelCall, tools: Sequence[AnyTool] | None = None) -> list[AnyTool]:
        """Return those of the tools that the server executes if the model calls them."""
        # A model may call a tool although the choice was "none"; such a call is not executed.
        names = {tool.name for tool in call.tools} if call.tool_choice.mode != "none" else set()
        names -= set(self.request.client_tools)
        return [tool for tool in (self.tools if tools is None else tools) if tool.name in names]

    def server_functions(self, call: ModelCall) -> Container[str]:
        """Return the names of the functions that are executed here if the model, or the agent, calls them."""
        if isinstance(self.model, AgentModel):
            return ServerFunctions(self.request.client_tools)
        return {tool.name for tool in self.executable_tools(call)}

    async def create_run(
        self,
        call: ModelCall,
        *,
        model: ChatModel | None = None,
        with_seals: bool,
        thread_id: str | None = None,
        mcp_servers: RequestServers | None = None,
        stored_as: StoredResponse | None = None,
        stages: Sequence[Stage] = (),
    ) -> RunSource:
        """Create a run of the call, which the code that serves it drives.

        Args:
            call: The call of the model, or of the agent: the request of the first turn.
            model: Replaces the requested model.
            with_seals: Whether reasoning is sealed.
            thread_id: The thread to which seals are bound.
            mcp_servers: MCP servers that the request names. Their tools join the call when they are connected.
            stored_as: The row of a response that is stored before its end is shown.
            stages: Stages before all others.

        Raises:
            PellucidError: There is not enough memory for new work, or the agent cannot be run with this request.
        """
        services, model, principal = self._services, model or self.model, self._exchange.principal
        services.memory.check()
        run_telemetry = self._exchange.telemetry.begin_run(model, services.tool_names)
        all_stages = [*stages, *self._summary_stages()]
        if with_seals:  # after the summaries of an item
            all_stages.append(SealStage(services.sealer.for_tenant(principal.owner, thread_id).seal))
        costs = services.cost_recorder(principal, self.model_name)
        all_stages.append(MeterStage(services.guard, principal, run_telemetry, costs))
        if stored_as is not None:
            all_stages.append(StoreStage(stored_as, services.store))
        limits = services.config.tools
        max_calls = min(self.request.max_tool_calls or limits.max_calls, limits.max_calls)
        if isinstance(model, AgentModel):
            if mcp_servers is not None:
                raise unsupported(next(iter(mcp_servers.servers)), "is an agent with tools of its own", model.name)
            run_telemetry.source = agent_run = await model.start(
                call,
                self.client,
                all_stages,
                max_tool_calls=max_calls,
                wrap_model=lambda called: run_telemetry.observe(services.catalog.with_media(called)),
            )
            return agent_run

        def make_turn_handler(call: ModelCall, tools: Sequence[AnyTool]) -> TurnHandler:
            if not tools:
                return TurnHandler()
            server = ServerToolset(
                tools,
                timeout=limits.timeout_seconds,
                parallel=call.settings.get("parallel_tool_calls") is not False,
                observer=run_telemetry.trace_tool_call,
            )
            return ServerTurnHandler(server, server.names, RunContext(principal.owner, model))

        run_telemetry.source = run = LiveRun(
            run_telemetry.model,
            call,
            self.mint,
            make_turn_handler(call, self.executable_tools(call))
            if mcp_servers is None
            else MCPTurnHandler(mcp_servers, make_turn_handler),
            stages=all_stages,
            max_tool_calls=max_calls,
            log_faults=True,
        )
        return run

    def _summary_stages(self) -> list[Stage]:
        """Return the stage that makes summaries for reasoning that has none, if the viewer gets them."""
        services, viewer = self._services, self.viewer
        is_wanted = (
            self.request.wants_summaries and viewer.summaries if viewer.rule.is_full else "summary" in viewer.rule.forms
        )
        if services.summary_writer is None or not is_wanted:
            return []
        charge = services.summary_charge(self._exchange.principal)
        return [SummaryStage(services.summary_writer, services.config.summaries.seconds, charge)]

    def add_warning_headers(self) -> None:
        """Add the warnings to the headers of the response."""
        self._exchange.response_headers += warning_headers(self.warnings)


async def prepare(
    services: Services,
    exchange: Exchange,
    request: ClientRequest,
    requested_model: str | None,
    mint: Mint,
    *,
    default_view: View = "raw",
    with_summaries: bool = True,
    tool_names: Collection[str] | None = None,
) -> PreparedRequest:
    """Look up everything that a request to a model needs.

    Args:
        services: The gateway's services.
        exchange: The exchange. Its viewer and its response headers are set.
        request: The decoded request.
        requested_model: The model's name; None for the default model.
        mint: Makes ids.
        default_view: The view if the request asks for none by the means that all protocols share.
        with_summaries: Whether a viewer of raw reasoning also gets summaries that the gateway made.
        tool_names: The server's tools that the request chooses (`tools`); None: all. An agent has its own, and none of
            these.

    Raises:
        RequestError: A chosen tool does not exist for the caller.
        PellucidError: The model is not there, is not allowed, or a limit is reached.
    """
    policy = exchange.principal.policy
    if requested_model is not None:
        policy.check_model(requested_model)
    name, model = await services.find_model(requested_model)
    policy.check_model(name)
    exchange.telemetry.model = name
    if isinstance(model, DeployedModel):
        exchange.telemetry.has_deployments = True
        model = model.for_request(exchange.telemetry.failed_deployments, exchange.set_deployment, policy.retry_thoughts)
    tools: Sequence[AnyTool] = ()
    exchange.viewer = exchange.viewer_for(services.catalog.max_view(name), default_view, with_summaries=with_summaries)
    # Before anything else is loaded: a request over its limits must cost little.
    exchange.response_headers += await services.guard.spend(exchange.principal)
    if tool_names is not None or not isinstance(model, AgentModel):
        tools = _choose_tools(await services.tools_for(exchange.principal), tool_names)
    if isinstance(model, AgentModel):
        tools = ()
    return PreparedRequest(services, exchange, request, name, model, mint, tools)


def _choose_tools(allowed: Sequence[AnyTool], names: Collection[str] | None) -> Sequence[AnyTool]:
    if names is None:
        return allowed
    known = {tool.name for tool in allowed}
    for index, name in enumerate(names):
        if name not in known:
            there_are = f"there are {', '.join(sorted(known))}" if known else "there are none"
            raise invalid(f"tools[{index}]", f"there is no tool {truncate(name)!r} for you here; {there_are}")
    return [tool for tool in allowed if tool.name in names]
