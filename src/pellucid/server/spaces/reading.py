"""What was said in a space, for one who asks: pages, search, trees, shapes, references, export and replay.

All of it comes out of `spaces.past`, which shows a reader what they may see and nothing else; here stands what HTTP
makes of it. Envelopes are written in the dialect that is asked for (`?dialect=`), MEW's otherwise.

The history of a space for one participant, as the doors hand it out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ...asgi import http
from ...envelopes import USUAL, DialectName, Envelope, encode, write
from ...envelopes.context import parse as path_of
from ...envelopes.kinds import normal
from ...envelopes.shown import SpaceView
from ...errors import PellucidError, RequestError
from ...spaces.past.exporting import export_format, reasoning_form
from ...spaces.past.history import History
from ...spaces.past.reading import Page, Which
from ..access.credentials import credential
from ..exchange import Exchange, whole_number
from ..services import Services
from . import asked
from .door import Inside


def told(value: Any, dialect: DialectName = USUAL) -> Any:
    """A struct and all that is in it."""
    if isinstance(value, Envelope):
        return write(value, dialect)
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {encoded: told(getattr(value, name), dialect) for name, encoded in names}
    if isinstance(value, dict):
        return {name: told(one, dialect) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [told(one, dialect) for one in value]
    return value


async def tell(exchange: Exchange, value: Any) -> None:
    """Who may see what changes from one moment to the next: nobody keeps an answer."""
    exchange.headers.append((b"cache-control", b"no-store"))
    await exchange.answer(value)


def history_of(services: Services, inside: Inside, view: SpaceView, token: str | None) -> History:
    """`token`: with which other spaces are looked into, for what is referred to there."""

    async def elsewhere(name: str) -> History | None:
        if token is None:
            return None
        try:
            other = Inside(*await services.spaces.admit(name, token))
        except PellucidError:
            return None
        return history_of(services, other, "full", None)

    space = inside.space
    return History(
        services.store,
        space.owner,
        space.name,
        space.reader(inside.participant, view),
        advisory=space.advisory,
        elsewhere=elsewhere,
    )


USUALLY = 100
"""Envelopes on one page. Who asks for more than `history.MOST_PAGE` gets so many, and is told that there are more."""

MOST = 10_000
NDJSON = "application/x-ndjson"


class SpacePage(Page, frozen=True, kw_only=True):
    head: int


class Reading:
    def __init__(self, services: Services) -> None:
        self._services = services

    def _history(self, exchange: Exchange, inside: Inside) -> History:
        return history_of(self._services, inside, asked.view(exchange), credential(exchange.scope))

    # --- envelopes ---------------------------------------------------------------------------------------------

    async def page(self, exchange: Exchange, inside: Inside) -> None:
        page = await self._history(exchange, inside).page(
            after=asked.seq(exchange, "after_seq") or 0,
            before=asked.seq(exchange, "before_seq"),
            limit=_limit(exchange),
            newest=asked.yes(exchange, "newest"),
            **_filters(exchange),
        )
        answer = SpacePage(**msgspec.structs.asdict(page), head=inside.space.head)
        await tell(exchange, told(answer, _dialect(exchange)))

    async def one(self, exchange: Exchange, inside: Inside) -> None:
        seq = _seq(exchange)
        envelope = await self._history(exchange, inside).one(seq)
        if envelope is None:
            raise _not_there(seq)
        await tell(exchange, write(envelope, _dialect(exchange)))

    async def references(self, exchange: Exchange, inside: Inside) -> None:
        seq = _seq(exchange)
        found = await self._history(exchange, inside).references(seq)
        if found is None:
            raise _not_there(seq)
        await tell(exchange, told(found, _dialect(exchange)))

    async def search(self, exchange: Exchange, inside: Inside) -> None:
        query = exchange.asked("q")
        if not query:
            raise RequestError("q: what is to be found is required", code="missing", param="q")
        found = await self._history(exchange, inside).search(
            query, before=asked.seq(exchange, "before_seq"), limit=_limit(exchange, 50), **_filters(exchange)
        )
        await tell(exchange, told(found, _dialect(exchange)))

    # --- reasoning ---------------------------------------------------------------------------------------------

    async def contexts(self, exchange: Exchange, inside: Inside) -> None:
        history = self._history(exchange, inside)
        found = await history.contexts(before=asked.seq(exchange, "before_seq"), limit=_limit(exchange, 20))
        await tell(exchange, told(found, _dialect(exchange)))

    async def tree(self, exchange: Exchange, inside: Inside) -> None:
        path = path_of(exchange.params["path"], "path")
        found = await self._history(exchange, inside).tree(path)
        if found is None:
            raise RequestError(f"no reasoning of {path!r} is here", kind="not_found", code="context_unknown")
        await tell(exchange, told(found, _dialect(exchange)))

    async def patterns(self, exchange: Exchange, inside: Inside) -> None:
        history = self._history(exchange, inside)
        found = await history.patterns(before=asked.seq(exchange, "before_seq"), limit=_limit(exchange, 200))
        await tell(exchange, told(found, _dialect(exchange)))

    # --- streams -----------------------------------------------------------------------------------------------

    async def export(self, exchange: Exchange, inside: Inside) -> None:
        """All that the reader may see, as lines of JSON. A line that is missing at the end shows that it broke off."""
        lines = self._history(exchange, inside).export(
            export_format(exchange.asked("format") or "jsonl"),
            after=asked.seq(exchange, "after_seq") or 0,
            before=asked.seq(exchange, "before_seq"),
            dialect=_dialect(exchange),
            reasoning=reasoning_form(exchange.asked("reasoning") or "reasoning_content"),
            metadata=asked.yes(exchange, "metadata", True),
            complete=asked.yes(exchange, "complete"),
        )
        await _stream(exchange, lines, NDJSON)

    async def replay(self, exchange: Exchange, inside: Inside) -> None:
        """What was said, told again: as server-sent events for who asks for them, else as lines of JSON."""
        wanted, dialect = asked.replay(exchange, "instant"), _dialect(exchange)
        assert wanted is not None
        events = "text/event-stream" in (exchange.header("accept") or "") or exchange.asked("format") == "sse"

        async def written() -> AsyncIterator[bytes]:
            async for batch in self._history(exchange, inside).replay(wanted):
                lines = (encode(envelope, dialect) for envelope in batch)
                if events:
                    yield b"".join(
                        b"id: %d\ndata: %b\n\n" % (envelope.seq, line)
                        for envelope, line in zip(batch, lines, strict=True)
                    )
                else:
                    yield b"".join(line + b"\n" for line in lines)

        await _stream(exchange, written(), http.EVENT_STREAM if events else NDJSON)


def _filters(exchange: Exchange) -> Which:
    """Of which kinds (`kind=chat,reasoning/*`), from whom (`from`) and in which context (`context`)."""
    within = exchange.asked("context")
    return {
        "kinds": tuple(_kind(name) for name in asked.several(exchange, "kind")),
        "sender": exchange.asked("from"),
        "within": path_of(within) if within else None,
    }


def _kind(name: str) -> str:
    """A kind, or a family of them (`reasoning/*`)."""
    if name.endswith(("/*", ".*")):
        return f"{normal(name[:-2])}/*"
    return normal(name)


def _dialect(exchange: Exchange) -> DialectName:
    return asked.dialect(exchange) or USUAL


def _limit(exchange: Exchange, usually: int = USUALLY) -> int:
    return exchange.number("limit", usually, 1, MOST)


def _seq(exchange: Exchange) -> int:
    return whole_number(exchange.params["seq"], "seq", 1)


def _not_there(seq: int) -> RequestError:
    return RequestError(
        f"there is no envelope {seq} here that you may read", kind="not_found", code="envelope_not_found", param="seq"
    )


async def _stream(exchange: Exchange, pieces: AsyncIterator[bytes], content_type: str) -> None:
    """What is wrong before the first piece is an error; after it, the answer breaks off. Who leaves stops it."""
    async with http.Client(exchange):
        first = await anext(pieces, None)
        await exchange.stream(content_type)
        if first is not None:
            await exchange.send(http.piece(first))
        async for piece in pieces:
            await exchange.send(http.piece(piece))
        await exchange.send(http.piece(b"", last=True))
