"""`GET /api/conversations/{id}/export`: a chat as a file, in the view of its reader."""

from __future__ import annotations

from ...asgi import http
from ...offload import offload, text_weight
from ...protocols.chat.markdown import to_markdown
from ...protocols.decoding import invalid
from ...unicode import clean_file_name
from ..exchange import Exchange
from ..routing import Handlers
from . import response_types
from .reader import read_chat

_EXTENSIONS = {"markdown": "md", "json": "json"}
_MAX_NAME_CHARACTERS = 80


class ExportHandler(Handlers):
    """Handler of `GET /api/conversations/{id}/export`."""

    async def __call__(self, exchange: Exchange) -> None:
        """Export the shown branch as Markdown, or all branches as JSON."""
        format = exchange.query_param("format") or "markdown"
        if format not in _EXTENSIONS:
            raise invalid("format", "must be markdown or json")
        id = exchange.path_params["id"]
        chat, turns = read = await read_chat(self._services, exchange, id, all_branches=format == "json")
        name = f"{clean_file_name(chat.title, 'chat', _MAX_NAME_CHARACTERS)}.{_EXTENSIONS[format]}"
        exchange.response_headers.append(http.content_disposition("attachment", name))
        exchange.response_headers.append((b"cache-control", b"no-store"))
        if format == "markdown":
            weight = text_weight(sum(len(turn.row.log) for turn in turns))
            text = await offload(weight, to_markdown, chat.title, read.events)
            await exchange.send_text(text.encode("utf-8", "replace"), "text/markdown; charset=utf-8")
        else:
            exported = [response_types.ExportedTurn(turn.row.previous_id, turn.question, turn.answer) for turn in turns]
            conversation = response_types.conversation_of(chat)
            await exchange.send_json(response_types.Exported(conversation, chat.head, exported))
