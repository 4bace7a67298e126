"""The stored description of how a response was requested, so that it can be encoded again for any viewer."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import RequestError
from ...protocols import StoredRunHeader
from ...protocols.openresponses import DIALECTS, PROTOCOL, ClientTool, Dialect, Encoder, Framing, client_dialect
from ...protocols.openresponses import types as t
from ...storage import StoredResponse
from ...view import Viewer
from ..exchange import Exchange
from ..services import Services

EVENTS_HEADER = "openresponses-reasoning-events"


class ResponseRunHeader(StoredRunHeader, frozen=True, kw_only=True):
    """How a response was requested."""

    protocol: str = PROTOCOL
    response: t.Response
    """The response as it was before any output."""
    dialect: Dialect
    seals: bool = False
    summaries: bool = False
    obfuscate: bool = False
    tools: dict[str, ClientTool] | UnsetType = UNSET
    """The client's tools that are not plain functions, by the name of their function."""

    def encoder(
        self,
        viewer: Viewer,
        *,
        dialect: Dialect | None = None,
        seals: bool | None = None,
        after: int = -1,
        framing: Framing = "events",
    ) -> Encoder:
        """Return the encoder of the response.

        Args:
            viewer: The viewer of the response.
            dialect: The names of events; by default those of the first request.
            seals: Whether sealed tokens are included; by default as in the first request.
            after: The last `sequence_number` that the client has; -1: none.
            framing: How events are separated.
        """
        return Encoder(
            msgspec.structs.replace(self.response),
            dialect or self.dialect,
            obfuscate=self.obfuscate,
            seals=(self.seals if seals is None else seals) or viewer.rule.only_seals,
            after=after,
            framing=framing,
            tools={} if self.tools is UNSET else self.tools,
        )


class _HeaderWithTools(msgspec.Struct):
    tools: dict[str, ClientTool] = {}


_decode_tools = msgspec.json.Decoder(_HeaderWithTools).decode


def client_tools_of(row: StoredResponse) -> dict[str, ClientTool]:
    """Return the client's tools of a stored response that are not plain functions."""
    return _decode_tools(row.header).tools


def dialect_of(exchange: Exchange, services: Services) -> Dialect:
    """Return the dialect of a request's response. Raises `RequestError`.

    It is what the request names, else the key's setting, else that of the client (if it is known), else the server's
    default.
    """
    return (
        requested_dialect(exchange)
        or exchange.principal.policy.reasoning_events
        or client_dialect(exchange.request_header)
        or services.config.server.reasoning_events
    )


def requested_dialect(exchange: Exchange) -> Dialect | None:
    """Return the dialect that the request names; None if it names none. Raises `RequestError`."""
    requested = exchange.request_header(EVENTS_HEADER)
    if requested is None:
        return None
    for dialect in DIALECTS:
        if dialect == requested.lower():
            return dialect
    raise RequestError(
        f"the header OpenResponses-Reasoning-Events must be {' or '.join(DIALECTS)}, not {requested.lower()!r}",
        code="invalid_header",
    )
