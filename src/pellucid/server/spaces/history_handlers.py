"""Handlers of a space's history: pages, search, context trees, patterns, references, export and replay.

`spaces.history` selects what a participant may see, and these handlers encode it for HTTP. Envelopes are encoded in the
requested dialect (`?dialect=`), by default MEW's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from ...asgi import http
from ...envelopes import DEFAULT_DIALECT, DialectName, Envelope, encode, write
from ...envelopes.context import parse as path_of
from ...envelopes.kinds import normalize_kind
from ...envelopes.visibility import SpaceView
from ...errors import PellucidError, RequestError
from ...spaces.history.export import export_format, reasoning_form
from ...spaces.history.history import History
from ...spaces.history.visible_log import EnvelopeFilter, Page
from ..access.credentials import credential
from ..exchange import Exchange, parse_int
from ..services import Services
from . import space_query
from .auth import AuthenticatedParticipant


def to_json_value(value: Any, dialect: DialectName = DEFAULT_DIALECT) -> Any:
    """Return a struct, with all nested values, as JSON values."""
    if isinstance(value, Envelope):
        return write(value, dialect)
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {encoded: to_json_value(getattr(value, name), dialect) for name, encoded in names}
    if isinstance(value, dict):
        return {name: to_json_value(one, dialect) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(one, dialect) for one in value]
    return value


async def send_uncached(exchange: Exchange, value: Any) -> None:
    """Send a value that must not be cached: what a participant may see can change at any time."""
    exchange.response_headers.append((b"cache-control", b"no-store"))
    await exchange.send_json(value)


def history_of(
    services: Services, authenticated: AuthenticatedParticipant, view: SpaceView, token: str | None
) -> History:
    """Return the history of the space as this participant may see it.

    Args:
        services: The gateway's services.
        authenticated: The participant.
        view: How much reasoning is shown.
        token: The token with which referenced envelopes in other spaces are read; None: they are not.
    """

    async def open_other_history(name: str) -> History | None:
        if token is None:
            return None
        try:
            other_participant = AuthenticatedParticipant(*await services.spaces.admit(name, token))
        except PellucidError:
            return None
        return history_of(services, other_participant, "full", None)

    space = authenticated.space
    return History(
        services.store,
        space.owner,
        space.name,
        space.viewer(authenticated.participant, view),
        other_history=open_other_history,
    )


DEFAULT_PAGE_SIZE = 100
"""Envelopes on one page.

A page has at most `history.MAX_PAGE_SIZE` envelopes; a request for more gets a page that says that there are more.
"""

MAX_PAGE_SIZE = 10_000
NDJSON = "application/x-ndjson"


class SpacePage(Page, frozen=True, kw_only=True):
    head: int


class HistoryHandlers:
    """Handlers of the history routes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def _history(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> History:
        return history_of(self._services, authenticated, space_query.view_param(exchange), credential(exchange.scope))

    # --- envelopes ---------------------------------------------------------------------------------------------

    async def page(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        page = await self._history(exchange, authenticated).page(
            after=space_query.seq_param(exchange, "after_seq") or 0,
            before=space_query.seq_param(exchange, "before_seq"),
            limit=_limit(exchange),
            newest=space_query.bool_param(exchange, "newest"),
            **_filters(exchange),
        )
        answer = SpacePage(**msgspec.structs.asdict(page), head=authenticated.space.head)
        await _send(exchange, answer)

    async def envelope(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        seq = _seq(exchange)
        envelope = await self._history(exchange, authenticated).one(seq)
        if envelope is None:
            raise _envelope_not_found(seq)
        await _send(exchange, envelope)

    async def references(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        seq = _seq(exchange)
        references = await self._history(exchange, authenticated).references(seq)
        if references is None:
            raise _envelope_not_found(seq)
        await _send(exchange, references)

    async def search(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        query = exchange.query_param("q")
        if not query:
            raise RequestError("q: required: the text to search for", code="missing", param="q")
        hits = await self._history(exchange, authenticated).search(
            query,
            before=space_query.seq_param(exchange, "before_seq"),
            limit=_limit(exchange, 50),
            **_filters(exchange),
        )
        await _send(exchange, hits)

    # --- reasoning ---------------------------------------------------------------------------------------------

    async def contexts(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        history = self._history(exchange, authenticated)
        contexts = await history.contexts(
            before=space_query.seq_param(exchange, "before_seq"), limit=_limit(exchange, 20)
        )
        await _send(exchange, contexts)

    async def tree(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        path = path_of(exchange.path_params["path"], "path")
        tree = await self._history(exchange, authenticated).tree(path)
        if tree is None:
            raise context_not_found(path)
        await _send(exchange, tree)

    async def patterns(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        history = self._history(exchange, authenticated)
        patterns = await history.patterns(
            before=space_query.seq_param(exchange, "before_seq"), limit=_limit(exchange, 200)
        )
        await _send(exchange, patterns)

    # --- streams -----------------------------------------------------------------------------------------------

    async def export(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Export all that the participant may see, as JSON lines.

        The last line is missing if the export broke off.
        """
        lines = self._history(exchange, authenticated).export(
            export_format(exchange.query_param("format") or "jsonl"),
            after=space_query.seq_param(exchange, "after_seq") or 0,
            before=space_query.seq_param(exchange, "before_seq"),
            dialect=_dialect(exchange),
            reasoning=reasoning_form(exchange.query_param("reasoning") or "reasoning_content"),
            metadata=space_query.bool_param(exchange, "metadata", True),
            complete=space_query.bool_param(exchange, "complete"),
        )
        await _stream(exchange, lines, NDJSON)

    async def replay(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Replay envelopes: as server-sent events if the client accepts them, else as JSON lines."""
        replay_range, dialect = space_query.replay_param(exchange, "instant"), _dialect(exchange)
        assert replay_range is not None
        as_sse = "text/event-stream" in (exchange.request_header("accept") or "")

        async def encode_batches() -> AsyncIterator[bytes]:
            async for batch in self._history(exchange, authenticated).replay(replay_range):
                lines = (encode(envelope, dialect) for envelope in batch)
                if as_sse:
                    yield b"".join(
                        b"id: %d\ndata: %b\n\n" % (envelope.seq, line)
                        for envelope, line in zip(batch, lines, strict=True)
                    )
                else:
                    yield b"".join(line + b"\n" for line in lines)

        await _stream(exchange, encode_batches(), http.EVENT_STREAM if as_sse else NDJSON)


def _filters(exchange: Exchange) -> EnvelopeFilter:
    """Return the filters: kinds (`kind=chat,reasoning/*`), sender (`from`) and context (`context`)."""
    within = exchange.query_param("context")
    return {
        "kinds": kind_filter(space_query.list_param(exchange, "kind")),
        "sender": exchange.query_param("from"),
        "within": path_of(within) if within else None,
    }


def kind_filter(names: Iterable[str]) -> tuple[str, ...]:
    """Return kinds, and families of kinds (`reasoning/*`), in the normal form. Empty names are ignored."""
    return tuple(_kind(name) for name in names if name)


def _kind(name: str) -> str:
    if name.endswith(("/*", ".*")):
        return f"{normalize_kind(name[:-2])}/*"
    return normalize_kind(name)


def _dialect(exchange: Exchange) -> DialectName:
    return space_query.dialect_param(exchange) or DEFAULT_DIALECT


async def _send(exchange: Exchange, value: Any) -> None:
    await send_uncached(exchange, to_json_value(value, _dialect(exchange)))


def _limit(exchange: Exchange, default: int = DEFAULT_PAGE_SIZE) -> int:
    return exchange.query_int("limit", default, 1, MAX_PAGE_SIZE)


def _seq(exchange: Exchange) -> int:
    return parse_int(exchange.path_params["seq"], "seq", 1)


def context_not_found(path: str) -> RequestError:
    return RequestError(f"there is no context {path!r} here", kind="not_found", code="context_unknown")


def _envelope_not_found(seq: int) -> RequestError:
    return RequestError(
        f"there is no envelope {seq} here that you may read", kind="not_found", code="envelope_not_found", param="seq"
    )


async def _stream(exchange: Exchange, pieces: AsyncIterator[bytes], content_type: str) -> None:
    """Send the chunks.

    An error before the first chunk is a response; after it, the response breaks off. A client that leaves stops it.
    """
    async with http.Client(exchange):
        first = await anext(pieces, None)
        await exchange.stream(content_type)
        if first is not None:
            await exchange.send(http.body_message(first))
        async for piece in pieces:
            await exchange.send(http.body_message(piece))
        await exchange.send(http.body_message(b"", last=True))
