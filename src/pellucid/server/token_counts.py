"""The input tokens of a request, without an answer: `POST /v1/messages/count_tokens` and what other protocols share.

A provider that counts the tokens of requests (`Profile.count_path`) is asked: of several deployments, that of the one
that would be called. Otherwise, and if it does not answer with a number, it is an estimate from the text that would be
sent to the model, and the answer says so.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import UNSET

from ..errors import ModelError, RequestError
from ..models import ChatModel
from ..models.deployments import RequestModel
from ..models.media import MediaModel
from ..models.model import weight_of
from ..offload import offload
from ..protocols import messages
from ..protocols.client_protocols import CLIENT_PROTOCOLS
from ..protocols.messages import types as messages_types
from ..settings import ModelCall
from ..view import Viewer
from .exchange import Exchange, new_minter
from .prepare import prepare
from .routing import Handlers, Operation, Table, error_statuses_of


class TokenCountHandlers(Handlers):
    """Handlers of these routes."""

    async def messages(self, exchange: Exchange) -> None:
        raw = await exchange.read_json(self._services.config.server)
        headers = exchange.request_headers(messages.FORWARDED_HEADERS)
        request = await exchange.compute(messages.parse_request, raw, headers)
        prepared = await prepare(self._services, exchange, request, request.model, new_minter())
        call = await exchange.compute(prepared.stateless_call, request)
        prepared.add_warning_headers()
        count = await count_input_tokens(prepared.model, call, exchange.viewer)
        await exchange.send_json(messages_types.TokenCount(count.tokens, True if count.is_estimate else UNSET))


class TokenCount(NamedTuple):
    """The number of tokens of a request."""

    tokens: int
    is_estimate: bool


async def count_input_tokens(model: ChatModel, call: ModelCall, viewer: Viewer) -> TokenCount:
    """Count or estimate the tokens that a model would read for a call.

    Raises:
        RequestError: The viewer may not see token counts, which tell the length of sealed reasoning.
    """
    if not viewer.counts:
        raise RequestError("your key may not see token counts", kind="forbidden", code="counts_hidden")
    if isinstance(model, RequestModel):
        model = model.model.first_candidate(call)
    if isinstance(model, MediaModel):
        try:
            counted = await model.count_tokens(call)
        except ModelError:
            counted = None
        if counted is not None:
            return TokenCount(counted, is_estimate=False)
    return TokenCount(await offload(weight_of(call), _estimate_input_tokens, model, call), is_estimate=True)


def _estimate_input_tokens(model: ChatModel, call: ModelCall) -> int:
    call = call.for_wire(model.origin.api)
    content = msgspec.to_builtins([call.messages, call.tools, [tool.native for tool in call.native_tools]])
    return messages.estimate_tokens(content)


_MESSAGES = CLIENT_PROTOCOLS["messages"]
_PATH = f"{_MESSAGES.paths[0]}/count_tokens"

TABLE = Table(
    [
        Operation(
            "POST",
            _PATH,
            TokenCountHandlers.messages,
            "countMessageTokens",
            "Count or estimate the input tokens of a message",
            messages_types.TokenCount,
            request_body=messages_types.CountTokens,
            error_statuses=error_statuses_of(_MESSAGES.error_format),
        )
    ],
    protocol="messages",
    handlers=[TokenCountHandlers],
    error_body=messages_types.ErrorBody,
    component_prefix="Messages",
    advertised_routes=[f"POST {_PATH}"],
)
