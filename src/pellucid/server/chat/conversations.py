"""`/api/conversations`: list, search, open, change and delete chats.

Answers are encoded from their logs for each viewer; nothing is stored in the form of one view. Until a person names a
chat, its title is the beginning of its first question.
"""

from __future__ import annotations

import asyncio
from unicodedata import category

from msgspec import UNSET

from ...errors import RequestError
from ...protocols.chat import (
    MAX_TITLE_CHARS,
    Answer,
    Change,
    Question,
    answer_id,
    build_question,
    clean_instructions,
)
from ...protocols.chat.markdown import without_marks
from ...protocols.chat.types import Feedback
from ...protocols.decoding import decode, invalid
from ...storage import ChatNotFound, StoredResponse
from ...storage.chats import THREAD_PREFIX
from ...view import stricter
from ..exchange import VIEW_HEADER, Exchange
from ..feed import ConversationChanged, ConversationDeleted, window_of
from ..services import Services
from ..stored_runs import max_view_of
from . import response_types
from .answers import ChatRunHeader, build_event, decode_header
from .attachments import decode_input

AUTO_TITLE_CHARACTERS = 80
"""Maximum length of a title that is made from a question."""


def single_line(text: str) -> str:
    """Return the text in one line, without control characters."""
    return "".join(one for one in " ".join(text.split()) if category(one) != "Cc")


_INVISIBLE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}
_BLANK_CHARACTERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10)))
)
"""Characters that show nothing although their category is letter, symbol or mark."""


def is_visible(text: str) -> bool:
    """Return whether a text shows anything.

    A title of spaces or direction marks alone would leave nothing to click in a list.
    """
    return any(one not in _BLANK_CHARACTERS and category(one) not in _INVISIBLE_CATEGORIES for one in text)


def title_of(text: str) -> str:
    """Return a title for a question: one line, cut between words where possible, never blank."""
    line = single_line(text.lstrip()[: 10 * AUTO_TITLE_CHARACTERS])
    if not is_visible(line[: AUTO_TITLE_CHARACTERS - 1]):
        return "…"
    if len(line) <= AUTO_TITLE_CHARACTERS:
        return line
    cut = line[: AUTO_TITLE_CHARACTERS - 1]
    # The search includes one more character, to find a word that ends exactly there.
    end = line.rfind(" ", 0, AUTO_TITLE_CHARACTERS)
    # A text without spaces (a URL, Chinese) is cut at the limit.
    return (cut[:end] if end >= AUTO_TITLE_CHARACTERS // 2 else cut).rstrip() + "…"


def chat_id_of(exchange: Exchange) -> str:
    """Return the id in the path. Raises `ChatNotFound` for the id of a thread, which is no chat of this protocol."""
    id = exchange.path_params["id"]
    if id.startswith(THREAD_PREFIX):
        raise ChatNotFound(id)
    return id


class ConversationHandlers:
    """Handlers of the conversation routes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list(self, exchange: Exchange) -> None:
        """List a page of chats, or of those that contain the text `q`."""
        query = exchange.query_param("q") or None
        page = await self._services.store.chats.list(
            exchange.principal.owner,
            after=exchange.query_param("after") or None,
            limit=exchange.query_int("limit", 20, 1, 100),
            query=query,
        )
        data = [
            response_types.ConversationFound(
                **response_types.listed_fields(match.chat),
                snippet=UNSET if match.snippet is None else without_marks(match.snippet, query or ""),
            )
            for match in page.chats
        ]
        await exchange.send_json(response_types.Conversations(data, page.has_more, page.next_cursor))

    async def get(self, exchange: Exchange) -> None:
        """Open a chat with the events of one branch: that of the query parameter `head`, or the current one."""
        await exchange.send_json(await self.open(exchange, exchange.path_params["id"], exchange.query_param("head")))

    async def open(self, exchange: Exchange, id: str, head: str | None = None) -> response_types.Opened:
        """Return a chat of the caller's owner with the events of one branch, as the caller may see them."""
        if id.startswith(THREAD_PREFIX):
            raise ChatNotFound(id)
        chats, owner = self._services.store.chats, exchange.principal.owner
        chat = await chats.get(owner, id)
        if chat is None:
            raise ChatNotFound(id)
        turns = await chats.turns(owner, id, answer_id(head, "head") if head is not None else None)
        if turns is None:
            raise head_not_found(head) if head is not None else ChatNotFound(id)
        siblings = await chats.siblings(owner, id)
        feedback = await self.feedback_of(owner, id)
        events: list[Question | Answer] = []
        active_id = None
        for turn in turns:
            header = decode_header(turn.header)
            events.append(build_question_event(turn, header, siblings.get(turn.previous_id, [])))
            answer = await self.build_answer(exchange, turn, header)
            answer.feedback = feedback.get(turn.id, UNSET)
            events.append(answer)
            if not turn.is_finished:
                active_id = turn.id
            await asyncio.sleep(0)
        return response_types.Opened(response_types.conversation_of(chat), events, active_id)

    async def change(self, exchange: Exchange) -> None:
        """Set the title or the instructions, or select another branch."""
        change = decode(await exchange.read_body(self._services.config.server), Change)
        title = _parse_title(change.title) if change.title is not UNSET else None
        head = answer_id(change.head, "head") if change.head is not UNSET else None
        instructions = (clean_instructions(change.instructions) or "") if change.instructions is not UNSET else None
        if title is None and head is None and instructions is None:
            raise RequestError("title: nothing to change; send a title, a head, or instructions", code="missing")
        owner, id = exchange.principal.owner, chat_id_of(exchange)
        try:
            chat = await self._services.store.chats.update(owner, id, title=title, head=head, instructions=instructions)
        except RequestError as error:
            if error.info.code == "not_a_turn" and change.head is not UNSET:
                raise head_not_found(change.head) from None
            raise
        if chat is None:
            raise ChatNotFound(id)
        self._services.feed.publish(owner, ConversationChanged(conversation_id=id, window=window_of(exchange)))
        await exchange.send_json(response_types.conversation_of(chat))

    async def delete(self, exchange: Exchange) -> None:
        """Delete a chat with all its turns, also one in progress."""
        owner, id = exchange.principal.owner, chat_id_of(exchange)
        turns = await self._services.store.chats.delete(owner, id)
        if turns is None:
            raise ChatNotFound(id)
        self._services.feed.publish(owner, ConversationDeleted(conversation_id=id, window=window_of(exchange)))
        # Running turns end after the deletion: no turn can begin in between, and their ends are not stored.
        await self._services.stop_deleted(turns)
        await exchange.send_json(response_types.Deleted(id))

    async def follow(self, exchange: Exchange) -> None:
        """Stream the changes of all chats of the caller."""
        await self._services.feed.serve(exchange)

    async def feedback_of(self, owner: str, id: str) -> dict[str, Feedback]:
        """Return the feedback on the answers of a chat, by their ids."""
        rows = await self._services.store.feedback.of_chat(owner, id)
        return {
            one.response_id: Feedback(rating=one.rating, comment=one.comment) for one in (row.feedback for row in rows)
        }

    async def build_answer(self, exchange: Exchange, turn: StoredResponse, header: ChatRunHeader) -> Answer:
        """Return the canonical event of an answer, for this reader; without content while it is in progress."""
        # The answers of a chat may have different models. A request that asks for more than may be seen of this one is
        # not refused: it gets what may be seen.
        requested = exchange.request_header(VIEW_HEADER) or exchange.query_param("view")
        max_view = max_view_of(self._services, turn)
        viewer = exchange.viewer_for().limited_to(max_view if requested else stricter(max_view, header.view))
        if turn.is_finished:
            return await build_event(turn, header, viewer)
        return Answer(
            id=turn.id,
            conversation_id=header.conversation_id,
            model=header.model,
            created_at=header.created_at,
            segments=[],
            view=viewer.view,
            effort_level=header.effort or UNSET,
        )


def build_question_event(turn: StoredResponse, header: ChatRunHeader, versions: list[str]) -> Question:
    item = decode_input(turn.input)
    return build_question(turn.id, header.conversation_id, item.content, header.created_at, versions, item.attachments)


def _parse_title(text: str) -> str:
    title = single_line(text)
    if not is_visible(title) or len(title) > MAX_TITLE_CHARS:
        raise invalid("title", f"must be a text of 1 to {MAX_TITLE_CHARS} characters that is not blank")
    return title


def head_not_found(head: str) -> RequestError:
    return invalid("head", f"there is no event {head[:80]!r} in this conversation", "event_not_found", kind="not_found")
