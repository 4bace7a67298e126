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
from ..conversation import joined
from ..models import Asked
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
from ..runs.server_tools import NamedServers
from ..sealing import Sealed, attach, opener
from ..settings import ModelCall
from ..storage import StoredResponse
from ..tools import AnyTool
from ..view import Reader, View
from .exchange import Exchange
from .services import Services, definitions

LEAD = "This is what was said before, told again in less:\n\n"


def told(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The conversation, in which compactions of ours are words of the user's."""
    return joined(*(_told(message) for message in messages))


def _told(message: ModelMessage) -> list[ModelMessage]:
    if not isinstance(message, ModelResponse) or not any(map(_ours, message.parts)):
        return [message]
    out: list[ModelMessage] = []
    rest: list[ModelResponsePart] = []
    for part in message.parts:
        if not _ours(part):
            rest.append(part)
            continue
        if rest:
            out.append(replace(message, parts=rest))
            rest = []
        assert isinstance(part, CompactionPart)
        out.append(ModelRequest([UserPromptPart(f"{LEAD}{part.content}")]))
    return [*out, replace(message, parts=rest)] if rest else out


def _ours(part: ModelResponsePart) -> bool:
    return (
        isinstance(part, CompactionPart)
        and bool(part.content)
        and part.provider_name is None
        and part.signature is None
    )


class Prepared:
    """One request. `prepare` makes it."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        request: ClientRequest,
        name: str,
        model: Asked,
        mint: Mint,
        tools: Sequence[AnyTool],
    ) -> None:
        self.name = name
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
    def reader(self) -> Reader:
        return self._exchange.reader

    def opened(
        self,
        messages: Sequence[ModelMessage],
        *,
        thread: str | None = None,
        fits: Callable[[SealedPart, Sealed], bool] | None = None,
    ) -> list[ModelMessage]:
        """The messages without sealed parts. Raises `SealError`, with its place.

        `thread`: what they were bound to. `fits`: whether what was opened is for the entity that it stands at.
        """
        if not any(
            isinstance(p, SealedPart) for said in messages if isinstance(said, ModelResponse) for p in said.parts
        ):
            return list(messages)
        sealer = self._services.sealer.of(self._exchange.principal.owner, thread)
        attached = attach(messages, opener(sealer.open, self._request.place_of, fits))
        self.warnings += attached.warnings(self.model.origin)
        return attached.messages

    def call(self, messages: Sequence[ModelMessage], tools: Sequence[AnyTool] | None = None) -> ModelCall:
        """What to ask the model, with these tools beside the caller's own; by default, with this server's."""
        call = self._request.call(told(messages), definitions(self.tools if tools is None else tools))
        most = self._exchange.principal.policy.output_tokens(call.settings.get("max_tokens"))
        if most is not None:
            call = replace(call, settings={**call.settings, "max_tokens": most})
        if call.settings:
            self.warnings += self.model.warnings(call)
        return call

    def offered(self, call: ModelCall, tools: Sequence[AnyTool] | None = None) -> list[AnyTool]:
        """Those of the tools that are called here, should the model call them."""
        # A model may call what it was told not to; that is nothing to be carried out here.
        names = {tool.name for tool in call.tools} if call.tool_choice.mode != "none" else set()
        names -= set(self._request.own_tools)
        return [tool for tool in (self.tools if tools is None else tools) if tool.name in names]

    def run(
        self,
        call: ModelCall,
        tools: Sequence[AnyTool] | None = None,
        *,
        model: Asked | None = None,
        seals: bool,
        thread: str | None = None,
        servers: NamedServers | None = None,
        stored_as: StoredResponse | None = None,
    ) -> RunSource:
        """The call, to be driven by whoever serves it (see `Services.run`). `model` stands in for the one that was
        asked for."""
        reader = self.reader
        return self._services.run(
            model or self.model,
            call,
            self.mint,
            self._exchange.principal,
            tools=self.offered(call, tools),
            servers=servers,
            seals=seals,
            thread=thread,
            summaries=self._request.wants_summaries if reader.view == "raw" else "summary" in reader.rule.forms,
            max_tool_calls=self._request.max_tool_calls,
            stored_as=stored_as,
            watch=self._exchange.watch,
        )

    def warn(self) -> None:
        """Tell the warnings with whatever is answered."""
        self._exchange.headers += warned(self.warnings)


async def prepare(
    services: Services,
    exchange: Exchange,
    request: ClientRequest,
    asked: str | None,
    mint: Mint,
    *,
    unasked: View = "raw",
    summaries: bool = True,
) -> Prepared:
    """Look it up. Raises `PellucidError`.

    `asked`: the model, None for the default. `unasked`: the view of who asks for none by the ways that all protocols
    have in common. `summaries`: whether who sees raw reasoning takes our summaries, where there are any.
    """
    policy = exchange.principal.policy
    if asked is not None:
        policy.check_model(asked)
    name, model = services.catalog.find(asked)
    policy.check_model(name)
    exchange.watch.model = name
    exchange.reader = exchange.reads(services.catalog.most(name), unasked, summaries=summaries)
    # What is over its limits costs nothing more than this.
    exchange.headers += await services.guard.spend(exchange.principal)
    return Prepared(services, exchange, request, name, model, mint, await services.tools_for(exchange.principal))
