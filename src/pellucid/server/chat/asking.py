"""`POST /api/chat`: a question, in a new chat or as the next turn of one, and the stream of its answer.

The answer is a run of its own, which goes on when its reader leaves. Until the question is kept, whatever is wrong is
a status; after that it is an event.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from ...conversation import joined
from ...parts import ModelMessage, messages_from_json, messages_to_json
from ...protocols import ai_sdk
from ...protocols.chat import ANSWER, CONVERSATION, Request, parse_request, question_id
from ...protocols.decoding import read_json
from ...run import Minter
from ...runs import clock_ms
from ...storage import ChatBusy, ChatGone, ChatMoved, StoredChat, StoredResponse
from ..access.errors import forbidden
from ..exchange import Exchange, new_minter
from ..prepare import Prepared, prepare
from ..services import Services
from ..stateless import StatelessEndpoint
from .answers import Header, encode_header, is_chat, no_event, tell
from .conversations import title_of


class Place(NamedTuple):
    """Where in which chat a question stands."""

    chat: StoredChat
    previous: str | None
    """The turn before it."""


class Ask:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ai_sdk = StatelessEndpoint(services, ai_sdk.PROTOCOL)

    async def __call__(self, exchange: Exchange) -> None:
        raw = read_json(await exchange.body(self._services.config.server))
        if ai_sdk.recognises(raw, exchange.query):
            await self._ai_sdk.answer(exchange, raw)
        else:
            await self._ask(exchange, parse_request(raw))

    async def _ask(self, exchange: Exchange, request: Request) -> None:
        services, principal = self._services, exchange.principal
        if not principal.policy.store:
            raise forbidden(
                "a chat is kept, and you may not have anything kept; use a key that may, or POST /v1/responses with "
                "store: false",
                "store_not_allowed",
            )
        mint = new_minter()
        prepared = await prepare(services, exchange, request, request.model, mint, summaries=False)
        if request.view is not None:
            exchange.reader = exchange.reader.asking(request.view)
        place = await self._place(exchange, request, mint)
        said = await self._said(principal.owner, place)
        run = prepared.run(prepared.call(joined(said, [request.asked])), seals=False)
        prepared.warn()
        header = self._header(exchange, prepared, request, place)
        row = self._row(exchange, mint(ANSWER), header, place, request)
        exchange.watch.response_id = row.id
        # The run takes its place when it opens; whoever has none left is told so now, and not by a run that failed.
        async with services.guard.stream(principal):
            pass

        async def begin(row: StoredResponse, fence: int) -> None:
            await services.store.chats.begin_turn(place.chat, row, fence, follows=request.follows)

        await services.detached.start(row, run, begin=begin)
        await tell(exchange, services.detached.follow(row), row.id, header)

    async def _place(self, exchange: Exchange, request: Request, mint: Minter) -> Place:
        """Raises `RequestError` for a chat or a turn that is not there."""
        owner, store = exchange.principal.owner, self._services.store
        replaced = await self._replaced(owner, request)
        id = request.conversation_id or (replaced.conversation_id if replaced is not None else None)
        if id is None:
            now = clock_ms() / 1000
            new = StoredChat(
                id=mint(CONVERSATION),
                owner=owner,
                title=title_of(request.text),
                created_at=now,
                updated_at=now,
                expires_at=self._services.expiry(exchange.principal),
            )
            return Place(new, None)
        chat = await store.chats.get(owner, id)
        if chat is None:
            raise ChatGone(id)
        # What moves from here on is told by the store, when the turn is to begin.
        if request.follows not in (None, chat.head):
            raise ChatMoved
        return Place(chat, chat.head if replaced is None else replaced.previous_id)

    async def _replaced(self, owner: str, request: Request) -> StoredResponse | None:
        if request.replaces is None:
            return None
        row = await self._services.store.responses.get(owner, request.replaces)
        here = request.conversation_id
        if row is None or not is_chat(row) or (here is not None and row.conversation_id != here):
            raise no_event(request.replaces, "replaces")
        return row

    async def _said(self, owner: str, place: Place) -> list[ModelMessage]:
        """The branch until now."""
        if place.previous is None:
            return []
        turns = await self._services.store.chats.turns(owner, place.chat.id, place.previous, log=False)
        if turns is None:
            raise ChatGone(place.chat.id)
        if not turns[-1].finished:
            raise ChatBusy
        said = []
        for turn in turns:
            said.append(messages_from_json(turn.messages))
            await asyncio.sleep(0)
        return joined(*said)

    def _header(self, exchange: Exchange, prepared: Prepared, request: Request, place: Place) -> Header:
        return Header(
            conversation_id=place.chat.id,
            model=prepared.name,
            view=exchange.reader.view,
            most=self._services.catalog.most(prepared.name),
            created_at=clock_ms(),
            effort=request.effort,
        )

    def _row(self, exchange: Exchange, id: str, header: Header, place: Place, request: Request) -> StoredResponse:
        item = {"id": question_id(id), "type": "message", "role": "user", "content": request.text}
        return StoredResponse(
            id=id,
            owner=exchange.principal.owner,
            created_at=header.created_at / 1000,
            updated_at=header.created_at / 1000,
            expires_at=self._services.expiry(exchange.principal),
            status="in_progress",
            model=header.model,
            previous_id=place.previous,
            conversation_id=place.chat.id,
            background=True,
            header=encode_header(header),
            input=msgspec.json.encode([item]),
            messages=messages_to_json([request.asked]),
            text=request.text,
        )
