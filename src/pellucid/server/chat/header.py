"""How a question was asked: what is kept of it, so that its answer can be told again to whoever may read it."""

from __future__ import annotations

import msgspec

from ...errors import RequestError
from ...storage import StoredResponse
from ...view import Reader, View, lesser
from ..exchange import VIEW_HEADER, Exchange
from ..services import Services, protocol_of


class Header(msgspec.Struct, frozen=True):
    """`protocol` says whose it is: rows of all protocols stand in one table."""

    conversation_id: str
    model: str
    """Its public name."""
    view: View
    """In what form the reasoning was asked for."""
    most: View
    """What anybody might see of the model."""
    created_at: int
    """In milliseconds since 1970."""
    effort: str | None = None
    protocol: str = "chat"

    def reader(self, exchange: Exchange, services: Services) -> Reader:
        """Who reads the answer now: with what the question was asked with, unless they ask otherwise. Raises
        `RequestError` (forbidden) if they ask for more than may be seen of it."""
        return exchange.reads(self._most(services), self.view)

    def reader_among_others(self, exchange: Exchange, services: Services) -> Reader:
        """The same for an answer that stands beside those of other models: whoever asks for more than may be seen of
        this one gets that."""
        asked = exchange.header(VIEW_HEADER) or exchange.asked("view")
        most = self._most(services)
        return exchange.reads().lesser(most if asked else lesser(most, self.view))

    def _most(self, services: Services) -> View:
        """What was not to be seen of the model then is not to be seen later either."""
        return lesser(self.most, services.catalog.most(self.model))


_decode = msgspec.json.Decoder(Header).decode
encode_header = msgspec.json.Encoder().encode


def read_header(row: StoredResponse) -> Header:
    """Of a row that `is_chat`."""
    return _decode(row.header)


def is_chat(row: StoredResponse) -> bool:
    """Rows of all protocols stand in one table."""
    return protocol_of(row.header) == "chat"


def no_event(id: str, param: str) -> RequestError:
    """It is not there, or is another tenant's: which, is not said."""
    return RequestError(
        f"{param}: there is no event {id[:80]!r} here; it may have been deleted, or have expired",
        kind="not_found",
        code="event_not_found",
        param=param,
    )
