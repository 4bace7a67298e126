"""A request to a model, in whatever protocol, with everything looked up that it needs here.

    who may     the model by its name, and whether this key may use it; a request of its allowance
    who reads   the least of what the key, the model and the request let them see
    sealed      what came back sealed is opened and put where it belongs
    tools       this server's beside the caller's own, which go before one of the same name

What is refused is a `PellucidError` whose place is the protocol's; what cannot be done and is no reason to refuse is a
warning. What a protocol goes on from (a store, a thread) is its endpoint's own.

What stands in for earlier turns, as a model is told it: the user's words, first of all, so that any model takes it.

Every model reads what a user says, and many take no conversation that begins with their own. A compaction that a
provider made is left as it is: only that provider knows what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ..asgi.http import warned
from ..conversation import join_messages
from ..models import ChatModel
from ..parts import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    SealedPart,
    UserPromptPart,
)
from ..protocols.client_protocols import ClientRequest
from ..run import Mint
from ..runs import RunSource
from ..runs.server_tools import RequestServers
from ..sealing import Sealed, attach, make_opener
from ..settings import ModelCall
from ..storage import StoredResponse
from ..tools import AnyTool
from ..view import View, Viewer
from .exchange import Exchange
from .services import Services, tool_definitions

COMPACTION_PREAMBLE = "This is what was said before, told again in less:\n\n"


def compactions_as_user_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The conversation, in which compactions of ours are words of the user's."""
    return join_messages(*(_split_compactions(message) for message in messages))


def _split_compactions(message: ModelMessage) -> list[ModelMessage]:
    if not isinstance(message, ModelResponse) or not any(map(_is_own_compaction, message.parts)):
        return [message]
    messages: list[ModelMessage] = []
    rest: list[ModelResponsePart] = []
    for part in message.parts:
        if not _is_own_compaction(part):
            rest.append(part)
            continue
        if rest:
            messages.append(replace(message, parts=rest))
            rest = []
        assert isinstance(part, CompactionPart)
        messages.append(ModelRequest([UserPromptPart(f"{COMPACTION_PREAMBLE}{part.content}")]))
    return [*messages, replace(message, parts=rest)] if rest else messages


def _is_own_compaction(part: ModelResponsePart) -> bool:
    return (
        isinstance(part, CompactionPart)
        and bool(part.content)
        and part.provider_name is None
        and part.signature is None
    )


class PreparedRequest:
    """One request. `prepare` makes it."""

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
        """This server's, as far as this key may use them."""
        self.warnings: list[str] = []
        """What was asked for and could not be done."""
        self._services = services
        self._exchange = exchange
        self._request = request

    @property
    def viewer(self) -> Viewer:
        return self._exchange.viewer

    def unseal(
        self,
        messages: Sequence[ModelMessage],
        *,
        thread_id: str | None = None,
        matches_part: Callable[[SealedPart, Sealed], bool] | None = None,
    ) -> list[ModelMessage]:
        """The messages without sealed parts. Raises `SealError`, with its place.

        `thread`: what they were bound to. `fits`: whether what was opened is for the entity that it stands at.
        """
        if not any(
            isinstance(p, SealedPart)
            for message in messages
            if isinstance(message, ModelResponse)
            for p in message.parts
        ):
            return list(messages)
        sealer = self._services.sealer.for_tenant(self._exchange.principal.owner, thread_id)
        attached = attach(messages, make_opener(sealer.open, self._request.token_path, matches_part))
        self.warnings += attached.warnings(self.model.origin)
        return attached.messages

    def model_call(self, messages: Sequence[ModelMessage], tools: Sequence[AnyTool] | None = None) -> ModelCall:
        """What to ask the model, with these tools beside the caller's own; by default, with this server's."""
        call = self._request.call(
            compactions_as_user_messages(messages), tool_definitions(self.tools if tools is None else tools)
        )
        limit = self._exchange.principal.policy.output_token_limit(call.settings.get("max_tokens"))
        if limit is not None:
            call = replace(call, settings={**call.settings, "max_tokens": limit})
        if call.settings:
            self.warnings += self.model.warnings(call)
        return call

    def executable_tools(self, call: ModelCall, tools: Sequence[AnyTool] | None = None) -> list[AnyTool]:
        """Those of the tools that are called here, should the model call them."""
        # A model may call what it was told not to; that is nothing to be carried out here.
        names = {tool.name for tool in call.tools} if call.tool_choice.mode != "none" else set()
        names -= set(self._request.client_tools)
        return [tool for tool in (self.tools if tools is None else tools) if tool.name in names]

    def create_run(
        self,
        call: ModelCall,
        tools: Sequence[AnyTool] | None = None,
        *,
        model: ChatModel | None = None,
        with_seals: bool,
        thread_id: str | None = None,
        mcp_servers: RequestServers | None = None,
        stored_as: StoredResponse | None = None,
    ) -> RunSource:
        """The call, to be driven by whoever serves it (see `Services.create_run`). `model` stands in for the one that was
        asked for."""
        viewer = self.viewer
        return self._services.create_run(
            model or self.model,
            call,
            self.mint,
            self._exchange.principal,
            tools=self.executable_tools(call, tools),
            mcp_servers=mcp_servers,
            with_seals=with_seals,
            thread_id=thread_id,
            with_summaries=self._request.wants_summaries if viewer.view == "raw" else "summary" in viewer.rule.forms,
            max_tool_calls=self._request.max_tool_calls,
            stored_as=stored_as,
            telemetry=self._exchange.telemetry,
        )

    def add_warning_headers(self) -> None:
        """Tell the warnings with whatever is answered."""
        self._exchange.response_headers += warned(self.warnings)


async def prepare(
    services: Services,
    exchange: Exchange,
    request: ClientRequest,
    requested_model: str | None,
    mint: Mint,
    *,
    default_view: View = "raw",
    with_summaries: bool = True,
) -> PreparedRequest:
    """Look it up. Raises `PellucidError`.

    `asked`: the model, None for the default. `unasked`: the view of who asks for none by the ways that all protocols
    have in common. `summaries`: whether who sees raw reasoning takes our summaries, where there are any.
    """
    policy = exchange.principal.policy
    if requested_model is not None:
        policy.check_model(requested_model)
    name, model = services.catalog.find(requested_model)
    policy.check_model(name)
    exchange.telemetry.model = name
    exchange.viewer = exchange.viewer_for(services.catalog.max_view(name), default_view, with_summaries=with_summaries)
    # What is over its limits costs nothing more than this.
    exchange.response_headers += await services.guard.spend(exchange.principal)
    return PreparedRequest(services, exchange, request, name, model, mint, await services.tools_for(exchange.principal))
