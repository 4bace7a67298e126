"""Reads chats: the questions and answers of their turns, as the reader of a request may see them.

Answers are encoded from their logs for each reader; nothing is stored in the form of one view.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from msgspec import UNSET

from ...errors import RequestError
from ...protocols.chat import Answer, Question, answer_id, build_answer, build_question
from ...protocols.chat.types import Feedback
from ...protocols.decoding import invalid
from ...storage import ChatNotFound, StoredChat, StoredResponse
from ...storage.chats import THREAD_PREFIX
from ...view import stricter
from ..exchange import VIEW_HEADER, Exchange
from ..services import Services
from ..stored_runs import max_view_of
from .answers import ChatRunHeader, build_event, decode_header
from .attachments import decode_input


class ReadTurn(NamedTuple):
    """A turn as its reader sees it."""

    row: StoredResponse
    question: Question
    answer: Answer


class ReadChat(NamedTuple):
    """A chat as its reader sees it."""

    chat: StoredChat
    turns: list[ReadTurn]

    @property
    def events(self) -> list[Question | Answer]:
        """The questions and answers, in their order."""
        return [event for turn in self.turns for event in (turn.question, turn.answer)]


def chat_id_of(exchange: Exchange) -> str:
    """Return the id in the path (see `_check_id`)."""
    return _check_id(exchange.path_params["id"])


def _check_id(id: str) -> str:
    """Return the id. Raises `ChatNotFound` for that of a thread, which is no chat of this protocol."""
    if id.startswith(THREAD_PREFIX):
        raise ChatNotFound(id)
    return id


def head_not_found(head: str) -> RequestError:
    return invalid("head", f"there is no event {head[:80]!r} in this conversation", "event_not_found", kind="not_found")


async def read_chat(
    services: Services, exchange: Exchange, id: str, head: str | None = None, *, all_branches: bool = False
) -> ReadChat:
    """Read a chat of the caller's owner.

    Args:
        services: The gateway's services.
        exchange: The exchange of the reader.
        id: The chat's id.
        head: The event that ends the branch; None: the branch that is shown.
        all_branches: Whether the turns of the other branches are read, too; all are then in the order of their times.

    Raises:
        RequestError: The chat or the branch does not exist.
    """
    chats, owner = services.store.chats, exchange.principal.owner
    chat = await chats.get(owner, _check_id(id))
    if chat is None:
        raise ChatNotFound(id)
    rows = await chats.turns(owner, id, answer_id(head, "head") if head is not None else None)
    if rows is None:
        raise head_not_found(head) if head is not None else ChatNotFound(id)
    siblings = await chats.siblings(owner, id)
    feedback = {
        one.response_id: Feedback(rating=one.rating, comment=one.comment)
        for one in (row.feedback for row in await services.store.feedback.of_chat(owner, id))
    }
    if all_branches:
        known = {row.id for row in rows}
        for other in (one for ids in siblings.values() for one in ids if one not in known):
            if (row := await services.store.responses.get(owner, other, log=True)) is not None:
                rows.append(row)
        rows.sort(key=lambda row: (row.created_at, row.id))
    turns = []
    for row in rows:
        header = decode_header(row.header)
        question = build_question_event(row, header, siblings.get(row.previous_id, []))
        answer = await _build_answer(services, exchange, row, header)
        answer.feedback = feedback.get(row.id, UNSET)
        turns.append(ReadTurn(row, question, answer))
        await asyncio.sleep(0)
    return ReadChat(chat, turns)


def build_question_event(row: StoredResponse, header: ChatRunHeader, versions: list[str]) -> Question:
    """Return the event of a turn's question."""
    item = decode_input(row.input)
    return build_question(row.id, header.conversation_id, item.content, header.created_at, versions, item.attachments)


async def _build_answer(services: Services, exchange: Exchange, row: StoredResponse, header: ChatRunHeader) -> Answer:
    """Return the event of an answer, for this reader; without content while it is in progress."""
    # The answers of a chat may have different models. A request that asks for more than may be seen of this one is not
    # refused: it gets what may be seen.
    requested = exchange.request_header(VIEW_HEADER) or exchange.query_param("view")
    max_view = max_view_of(services, row)
    viewer = exchange.viewer_for().limited_to(max_view if requested else stricter(max_view, header.view))
    if row.is_finished:
        return await build_event(row, header, viewer)
    return build_answer(header.start_frame(row.id, viewer.view))
