"""`/api/conversations`: the chats that there are, found, opened, named, taken away.

An answer is told again from its log to each reader as they may see it; nothing is kept in any reader's form.

What a chat is called until somebody names it: the beginning of its first question.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unicodedata import category

import msgspec
from msgspec import UNSET

from ...errors import PellucidError, RequestError
from ...protocols.chat import LONGEST_TITLE, Answer, Change, Question, answer_id, question
from ...protocols.decoding import decode
from ...storage import ChatGone, StoredChat, StoredResponse
from ...telemetry import log
from ..exchange import Exchange
from ..services import Services
from . import response_types
from .answers import Header, read_header, whole

LONGEST = 80
"""Characters."""


def plain(text: str) -> str:
    """In one line, without control characters."""
    return "".join(one for one in " ".join(text.split()) if category(one) != "Cc")


_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10))))
"""Letters, signs and marks by their category, that are there to take a place and show nothing."""


def shows(text: str) -> bool:
    """Whether anything of it can be seen: not of spaces alone, marks of direction and the like, which would leave
    nothing in a list to point at."""
    return any(one not in _BLANK and category(one) not in _UNSEEN for one in text)


def title_of(text: str) -> str:
    """In one line, whole words where there are any; always something that can be seen."""
    words = plain(text.lstrip()[: 10 * LONGEST])
    if not shows(words[: LONGEST - 1]):
        return "…"
    if len(words) <= LONGEST:
        return words
    cut = words[: LONGEST - 1]
    # One more than fits, so that a word that ends there is whole.
    end = words.rfind(" ", 0, LONGEST)
    # A text without spaces (a URL, Chinese) is cut where it must be.
    return (cut[:end] if end >= LONGEST // 2 else cut).rstrip() + "…"


class Conversations:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list(self, exchange: Exchange) -> None:
        """A page of them, or of those in which `q` stands."""
        page = await self._services.store.chats.list(
            exchange.principal.owner,
            after=exchange.asked("after") or None,
            limit=exchange.number("limit", 20, 1, 100),
            query=exchange.asked("q") or None,
        )
        data = [
            response_types.ConversationFound(
                **_told(found.chat), snippet=UNSET if found.snippet is None else found.snippet
            )
            for found in page.chats
        ]
        await exchange.answer(response_types.Conversations(data, page.has_more, page.last))

    async def get(self, exchange: Exchange) -> None:
        """One, with the events of a branch: `head`'s, or the one that is shown."""
        chats, owner, id = self._services.store.chats, exchange.principal.owner, exchange.params["id"]
        chat = await chats.get(owner, id)
        if chat is None:
            raise ChatGone(id)
        head = exchange.asked("head")
        turns = await chats.turns(owner, id, answer_id(head, "head") if head is not None else None)
        if turns is None:
            raise _no_turn(head) if head is not None else ChatGone(id)
        siblings = await chats.siblings(owner, id)
        events: list[Question | Answer] = []
        active = None
        for turn in turns:
            header = read_header(turn)
            events.append(_question(turn, header, siblings.get(turn.previous_id, [])))
            events.append(await self._answer(exchange, turn, header))
            if not turn.finished:
                active = turn.id
            await asyncio.sleep(0)
        await exchange.answer(response_types.Opened(response_types.Conversation(**_told(chat)), events, active))

    async def change(self, exchange: Exchange) -> None:
        """Give it a title, or show another branch."""
        change = decode(await exchange.body(self._services.config.server), Change)
        title = _title(change.title) if change.title is not UNSET else None
        head = answer_id(change.head, "head") if change.head is not UNSET else None
        if title is None and head is None:
            raise RequestError("title: nothing is to be changed; send a title, a head, or both", code="missing")
        owner, id = exchange.principal.owner, exchange.params["id"]
        try:
            chat = await self._services.store.chats.update(owner, id, title=title, head=head)
        except RequestError as error:
            if error.info.code == "not_a_turn" and change.head is not UNSET:
                raise _no_turn(change.head) from None
            raise
        if chat is None:
            raise ChatGone(id)
        await exchange.answer(response_types.Conversation(**_told(chat)))

    async def delete(self, exchange: Exchange) -> None:
        """With all its turns, also the one under way."""
        owner, id = exchange.principal.owner, exchange.params["id"]
        turns = await self._services.store.chats.delete(owner, id)
        if turns is None:
            raise ChatGone(id)
        # What is under way ends only now: nothing could begin in between, and its end is kept nowhere.
        await asyncio.gather(*(self._let_go(turn) for turn in turns))
        await exchange.answer(response_types.Deleted(id))

    async def _let_go(self, turn: StoredResponse) -> None:
        try:
            if not turn.finished:
                await self._services.cancel(turn)
            await self._services.detached.forget(turn)
        except PellucidError as error:
            log.warning("what runs in a chat that was deleted could not be stopped: %s", error.info.message)

    async def _answer(self, exchange: Exchange, turn: StoredResponse, header: Header) -> Answer:
        reader = header.reader_among_others(exchange, self._services)
        if turn.finished:
            return await whole(turn, header, reader)
        return Answer(
            id=turn.id,
            conversation_id=header.conversation_id,
            model=header.model,
            created_at=header.created_at,
            segments=[],
            view=reader.view,
            effort_level=header.effort or UNSET,
        )


def _question(turn: StoredResponse, header: Header, versions: list[str]) -> Question:
    [item] = msgspec.json.decode(turn.input)
    return question(turn.id, header.conversation_id, item["content"], header.created_at, versions)


def _told(chat: StoredChat) -> dict[str, Any]:
    return {
        "id": chat.id,
        "title": chat.title,
        "created_at": round(chat.created_at * 1000),
        "updated_at": round(chat.updated_at * 1000),
    }


def _title(given: str) -> str:
    title = plain(given)
    if not shows(title) or len(title) > LONGEST_TITLE:
        right = f"must be a text of 1 to {LONGEST_TITLE} characters, of which something can be seen"
        raise RequestError(f"title: {right}", code="invalid_value", param="title")
    return title


def _no_turn(head: str) -> RequestError:
    return RequestError(
        f"head: there is no event {head[:80]!r} in this conversation",
        kind="not_found",
        code="event_not_found",
        param="head",
    )
