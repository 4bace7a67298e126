"""`/api/conversations`: list, search, open, change and delete chats.

Until a person names a chat, its title is the beginning of its first question.
"""

from __future__ import annotations

from unicodedata import category

from msgspec import UNSET

from ...errors import RequestError
from ...protocols.chat import (
    MAX_TITLE_CHARS,
    Change,
    answer_id,
    clean_instructions,
)
from ...protocols.chat.markdown import without_marks
from ...protocols.decoding import decode, invalid
from ...storage import ChatNotFound
from ..exchange import Exchange
from ..feed import ConversationChanged, ConversationDeleted, window_of
from ..routing import Handlers
from . import response_types
from .reader import chat_id_of, head_not_found, read_chat

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


class ConversationHandlers(Handlers):
    """Handlers of the conversation routes."""

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
                active=match.chat.head if match.is_active and match.chat.head is not None else UNSET,
            )
            for match in page.chats
        ]
        await exchange.send_json(response_types.Conversations(data, page.has_more, page.next_cursor))

    async def get(self, exchange: Exchange) -> None:
        """Open a chat with the events of one branch: that of the query parameter `head`, or the current one."""
        id, head = exchange.path_params["id"], exchange.query_param("head")
        opened = await read_chat(self._services, exchange, id, head)
        active_id = next((turn.row.id for turn in reversed(opened.turns) if not turn.row.is_finished), None)
        conversation = response_types.conversation_of(opened.chat)
        await exchange.send_json(response_types.Opened(conversation, opened.events, active_id))

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


def _parse_title(text: str) -> str:
    title = single_line(text)
    if not is_visible(title) or len(title) > MAX_TITLE_CHARS:
        raise invalid("title", f"must be a text of 1 to {MAX_TITLE_CHARS} characters that is not blank")
    return title
