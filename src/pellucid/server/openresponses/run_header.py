"""How a response was asked for: what is kept of it, so that it can be told again to whoever may read it."""

from __future__ import annotations

import msgspec

from ...errors import RequestError
from ...protocols.openresponses import Dialect, Encoder, Framing
from ...protocols.openresponses import types as t
from ...view import View, Viewer, stricter
from ..exchange import Exchange
from ..services import Services

EVENTS_HEADER = "openresponses-reasoning-events"


class ResponseRunHeader(msgspec.Struct, frozen=True):
    """What is kept of how a response was asked for, so that it can be told again."""

    response: t.Response
    """As it was before anything had come."""
    dialect: Dialect
    view: View
    seals: bool = False
    summaries: bool = False
    obfuscate: bool = False
    protocol: str = "openresponses"
    most: View = "raw"
    """What anybody might see of its model."""

    def viewer(self, exchange: Exchange, max_view: View) -> Viewer:
        """Who reads it now: with what they were given then, unless they ask otherwise. `most`: what anybody may see of
        its model by now; what was not to be seen then is not to be seen later either."""
        return exchange.viewer_for(stricter(self.most, max_view), self.view, with_summaries=self.summaries)

    def encoder(
        self,
        viewer: Viewer,
        *,
        dialect: Dialect | None = None,
        seals: bool | None = None,
        after: int = -1,
        framing: Framing = "events",
    ) -> Encoder:
        return Encoder(
            msgspec.structs.replace(self.response),
            dialect or self.dialect,
            obfuscate=self.obfuscate,
            seals=(self.seals if seals is None else seals) or viewer.rule.only_seals,
            after=after,
            framing=framing,
        )


def dialect_of(exchange: Exchange, services: Services) -> Dialect:
    """Whose names reasoning events have. Raises `RequestError`."""
    requested = exchange.request_header(EVENTS_HEADER)
    match requested.lower() if requested is not None else None:
        case None:
            return exchange.principal.policy.reasoning_events or services.config.server.reasoning_events
        case "openresponses":
            return "openresponses"
        case "openai":
            return "openai"
        case other:
            raise RequestError(
                f"the header OpenResponses-Reasoning-Events must be openresponses or openai, not {other!r}",
                code="invalid_header",
            )
