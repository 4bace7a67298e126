"""`POST /api/chat`: a question, in a new chat or as the next turn of one. The response is the stream of its answer.

The answer is a detached run, which continues when its reader leaves. Before the question is stored, an error is a
status of the response; after that it is an event of the stream.
"""

from __future__ import annotations

from typing import NamedTuple

from ...conversation import count_parts, join_messages
from ...offload import json_weight, offload
from ...parts import ModelMessage, ModelRequest, SystemPromptPart, messages_from_json, messages_to_json
from ...protocols.chat import (
    ANSWER_PREFIX,
    CONVERSATION_PREFIX,
    PROTOCOL,
    Limits,
    Request,
    parse_request,
)
from ...run import Minter
from ...runs import clock_ms
from ...storage import ChatBusy, ChatMoved, ChatNotFound, StoredChat, StoredResponse
from ...storage.chats import THREAD_PREFIX
from ..access.errors import forbidden
from ..exchange import Exchange, new_minter
from ..feed import TurnStarted, window_of
from ..prepare import PreparedRequest, prepare
from ..routing import Handlers
from ..stateless import StatelessHandler
from ..stored_runs import find_row, make_row
from .answers import ChatRunHeader, event_not_found, serve_answer
from .attachments import check_media, encode_input, limits_for, with_stored_attachments
from .conversations import title_of
from .titles import title_stages


def _instructions(chat: StoredChat) -> list[ModelMessage]:
    """Return the message with the instructions of a chat: before all others, and not stored with any of them."""
    return [ModelRequest([SystemPromptPart(chat.instructions)])] if chat.instructions else []


def _first_name(request: Request) -> str:
    return next((one.name for one in request.attachments if not isinstance(one, str)), "")


class ChatPosition(NamedTuple):
    """The position of a question: a chat, and the turn before it."""

    chat: StoredChat
    previous_id: str | None
    """The turn before it."""
    is_new: bool = False
    """Whether the chat begins with it."""


class AskHandler(Handlers):
    """Handler of `POST /api/chat`."""

    async def __call__(self, exchange: Exchange) -> None:
        raw = await exchange.read_json(self._services.config.server)
        exchange.recognise_protocol(raw)
        if exchange.recognised_protocol is None:
            limits = limits_for(self._services, exchange)
            request = await exchange.compute(parse_request, raw, limits)
            await self._answer_question(exchange, request, limits)
        else:
            await StatelessHandler(self._services, exchange.recognised_protocol).handle(exchange, raw)

    async def _answer_question(self, exchange: Exchange, request: Request, limits: Limits) -> None:
        services, principal = self._services, exchange.principal
        if not principal.policy.store:
            raise forbidden(
                "a chat is stored, and your key does not allow that; use another key, or POST /v1/responses with "
                "store: false",
                "store_not_allowed",
            )
        mint = new_minter()
        prepared = await prepare(
            services, exchange, request, request.body.model, mint, with_summaries=False, tool_names=request.body.tools
        )
        if request.body.view is not None:
            exchange.viewer = exchange.viewer.for_request(request.body.view)
        request = await with_stored_attachments(services, principal.owner, request, limits)
        position = await self._resolve_position(exchange, request, mint)
        previous = await self._load_messages(principal.owner, position)
        exchange.weight += count_parts(previous)
        messages = join_messages(_instructions(position.chat), previous, [request.user_message])
        check_media(services, request, prepared.model_name, prepared.model, messages)
        call = await exchange.compute(prepared.model_call, messages)
        stages = (
            title_stages(services, principal, position.chat, request.body.text, prepared.model_name)
            if position.is_new
            else []
        )
        run = await prepared.create_run(call, with_seals=False, stages=stages)
        prepared.add_warning_headers()
        header = self._make_header(exchange, prepared, request, position)
        row = self._make_row(exchange, mint(ANSWER_PREFIX), header, position, request)
        exchange.telemetry.response_id = row.id

        async def begin(row: StoredResponse, fence: int) -> None:
            await services.store.chats.begin_turn(position.chat, row, fence, follows=request.follows)

        await services.start_detached(principal, row, run, begin)
        turn_started = TurnStarted(conversation_id=position.chat.id, event_id=row.id, window=window_of(exchange))
        services.feed.publish(principal.owner, turn_started)
        await serve_answer(exchange, services.detached.follow(row), row.id, header)

    async def _resolve_position(self, exchange: Exchange, request: Request, mint: Minter) -> ChatPosition:
        """Return the position of the question. Raises `RequestError` for a chat or a turn that does not exist."""
        owner, store = exchange.principal.owner, self._services.store
        replaced_turn = await self._load_replaced_turn(owner, request)
        id = request.body.conversation_id or (replaced_turn.conversation_id if replaced_turn is not None else None)
        if id is None:
            now = clock_ms() / 1000
            new_chat = StoredChat(
                id=mint(CONVERSATION_PREFIX),
                owner=owner,
                title=title_of(request.body.text or _first_name(request)),
                created_at=now,
                updated_at=now,
                expires_at=self._services.expires_at(exchange.principal),
                instructions=request.instructions,
            )
            return ChatPosition(new_chat, None, is_new=True)
        chat = await store.chats.get(owner, id)
        if chat is None or id.startswith(THREAD_PREFIX):
            raise ChatNotFound(id)
        # If the chat changes after this check, the store reports it when the turn begins.
        if request.follows not in (None, chat.head):
            raise ChatMoved
        return ChatPosition(chat, chat.head if replaced_turn is None else replaced_turn.previous_id)

    async def _load_replaced_turn(self, owner: str, request: Request) -> StoredResponse | None:
        if request.replaces is None:
            return None
        not_found = event_not_found(request.replaces, "replaces")
        row = await find_row(self._services, owner, request.replaces, PROTOCOL, not_found)
        if request.body.conversation_id not in (None, row.conversation_id):
            raise not_found
        return row

    async def _load_messages(self, owner: str, position: ChatPosition) -> list[ModelMessage]:
        """Load the messages of the branch up to the question."""
        if position.previous_id is None:
            return []
        turns = await self._services.store.chats.turns(owner, position.chat.id, position.previous_id, log=False)
        if turns is None:
            raise ChatNotFound(position.chat.id)
        if not turns[-1].is_finished:
            raise ChatBusy
        stored = [turn.messages for turn in turns]
        return await offload(json_weight(*stored), lambda: join_messages(*map(messages_from_json, stored)))

    def _make_header(
        self, exchange: Exchange, prepared: PreparedRequest, request: Request, position: ChatPosition
    ) -> ChatRunHeader:
        return ChatRunHeader(
            conversation_id=position.chat.id,
            model=prepared.model_name,
            view=exchange.viewer.view,
            max_view=self._services.catalog.max_view(prepared.model_name),
            created_at=clock_ms(),
            effort=request.body.effort,
        )

    def _make_row(
        self, exchange: Exchange, id: str, header: ChatRunHeader, position: ChatPosition, request: Request
    ) -> StoredResponse:
        return make_row(
            self._services,
            exchange.principal,
            header,
            created_at=header.created_at / 1000,
            id=id,
            model=header.model,
            previous_id=position.previous_id,
            conversation_id=position.chat.id,
            background=True,
            input=encode_input(id, request),
            messages=messages_to_json([request.user_message]),
            text=request.body.text,
        )
