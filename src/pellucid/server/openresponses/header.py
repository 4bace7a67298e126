"""How a response was asked for: what is kept of it, so that it can be told again to whoever may read it."""

from __future__ import annotations

import msgspec

from ...errors import RequestError
from ...protocols.openresponses import Dialect, Encoder, Framing
from ...protocols.openresponses import types as t
from ...view import Reader, View, lesser
from ..exchange import Exchange
from ..services import Services

EVENTS_HEADER = "openresponses-reasoning-events"


class Header(msgspec.Struct, frozen=True):
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

    def reader(self, exchange: Exchange, most: View) -> Reader:
        """Who reads it now: with what they were given then, unless they ask otherwise. `most`: what anybody may see of
        its model by now; what was not to be seen then is not to be seen later either."""
        return exchange.reads(lesser(self.most, most), self.view, summaries=self.summaries)

    def encoder(
        self,
        reader: Reader,
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
            seals=(self.seals if seals is None else seals) or reader.rule.only_seals,
            after=after,
            framing=framing,
        )


def dialect_of(exchange: Exchange, services: Services) -> Dialect:
    """Whose names reasoning events have. Raises `RequestError`."""
    asked = exchange.header(EVENTS_HEADER)
    match asked.lower() if asked is not None else None:
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
