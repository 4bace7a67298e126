"""Links that share a chat with anyone who has them, read-only.

* A link shows the branch up to one answer, as it was when the link was made; later turns are not in it. It serves the
  attachments of the questions that it shows, and no others.
* A link shows a view that its maker may see, by default without any reasoning, and at most what the model's and each
  question's view allow when it is read. It shows no ids of the chat, no costs and no token counts.
* The token of a link cannot be guessed, and is not stored. A link ends with its chat, when it expires or is deleted.
* Where keys are required, links are off unless the operator switches them on (`[chat] sharing`), because who has one
  needs no key. While they are off, those that exist cannot be opened. A link outlives the key that made it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec import UNSET

from ...errors import RequestError
from ...protocols.chat import Answer, Question, answer_id
from ...protocols.chat.types import NewShare
from ...protocols.decoding import decode, invalid
from ...runs import clock_ms
from ...storage import ChatNotFound, StoredChat, StoredShare
from ...view import Viewer, parse_view, stricter
from ..access.errors import forbidden
from ..exchange import Exchange
from ..routing import Handlers
from ..services import Services
from ..stored_runs import max_view_of
from . import response_types
from .answers import build_event, decode_header
from .attachments import load_attachment, send_attachment
from .reader import build_question_event, chat_id_of, head_not_found

SHARED_PATH = "/shared"
"""The path of the page that shows what a link shares. No log has what follows it (`RequestTelemetry.path`)."""

MAX_SHARES = 50
"""Maximum number of links to one chat."""

PRIVATE_HEADERS = [(b"cache-control", b"no-store"), (b"x-robots-tag", b"noindex"), (b"referrer-policy", b"no-referrer")]


async def are_links_on(services: Services, exchange: Exchange) -> bool:
    """Return whether chats can be shared by links here, and links be opened."""
    sharing = services.config.chat.sharing
    return sharing if sharing is not None else not await services.guard.requires_credential(exchange.scope)


async def may_share(services: Services, exchange: Exchange) -> bool:
    """Return whether the caller may share chats."""
    return exchange.principal.policy.share and await are_links_on(services, exchange)


class ShareHandlers(Handlers):
    """Handlers of links: make, list, delete and read."""

    async def create(self, exchange: Exchange) -> None:
        """Make a link to a chat."""
        if not await may_share(self._services, exchange):
            raise forbidden(
                "chats cannot be shared here: the operator has not switched it on ([chat] sharing = true), or your "
                "key does not allow it",
                "sharing_not_allowed",
            )
        body = await exchange.read_body(self._services.config.server)
        request = decode(body, NewShare) if body else NewShare()
        owner, id = exchange.principal.owner, chat_id_of(exchange)
        view = exchange.principal.policy.viewer.for_request(request.view).view
        chats = self._services.store.chats
        chat = await chats.get(owner, id)
        if chat is None or chat.head is None:
            raise ChatNotFound(id)
        head = answer_id(request.head, "head") if request.head is not UNSET else chat.head
        if await chats.turns(owner, id, head, log=False) is None:
            raise head_not_found(head)
        if len(await self._services.store.shares.list(owner, id)) >= MAX_SHARES:
            raise invalid("id", f"this conversation has {MAX_SHARES} links; delete one first", "too_many_shares")
        token = secrets.token_urlsafe(32)
        now = clock_ms() / 1000
        share = StoredShare(
            owner=owner,
            id=f"shr_{secrets.token_hex(12)}",
            chat_id=id,
            head=head,
            view=view,
            token_hash=_hash(token),
            created_at=now,
            expires_at=now + request.expires_in_seconds if request.expires_in_seconds is not UNSET else None,
        )
        if not await self._services.store.shares.add(share):
            raise ChatNotFound(id)
        shown = _share(share)
        shown.url = f"{SHARED_PATH}/{token}"
        exchange.response_headers += PRIVATE_HEADERS
        await exchange.send_json(shown)

    async def list(self, exchange: Exchange) -> None:
        """List the links to a chat, without their tokens."""
        owner, id = exchange.principal.owner, chat_id_of(exchange)
        if await self._services.store.chats.get(owner, id) is None:
            raise ChatNotFound(id)
        shares = await self._services.store.shares.list(owner, id)
        allowed = await may_share(self._services, exchange)
        await exchange.send_json(response_types.Shares([_share(share) for share in shares], allowed))

    async def delete(self, exchange: Exchange) -> None:
        """Delete a link. It ends at once."""
        share_id = exchange.path_params["share_id"]
        if not await self._services.store.shares.delete(exchange.principal.owner, chat_id_of(exchange), share_id):
            raise invalid("share_id", "there is no such link", "share_not_found", kind="not_found")
        await exchange.send_json(response_types.Deleted(share_id))

    async def read(self, exchange: Exchange) -> None:
        """Read what a link shares. The link is the only credential."""
        exchange.response_headers += PRIVATE_HEADERS
        share, chat = await self._open(exchange)
        turns = await self._services.store.chats.turns(share.owner, share.chat_id, share.head)
        if turns is None:
            raise _not_found()
        exchange.viewer = Viewer(parse_view(share.view), counts=False)
        events: list[Question | Answer] = []
        for turn in turns:
            header = msgspec.structs.replace(decode_header(turn.header), conversation_id=share.id)
            max_view = stricter(max_view_of(self._services, turn), header.view)
            if turn.is_finished:
                answer = await build_event(turn, header, exchange.viewer.limited_to(max_view))
                answer.usage = answer.deployment = UNSET
                question = build_question_event(turn, header, [])
                for attachment in question.attachments or ():
                    token = exchange.path_params["token"]
                    attachment.url = f"/api{SHARED_PATH}/{token}/attachments/{attachment.id}"
                events += [question, answer]
            await asyncio.sleep(0)
        await exchange.send_json(
            response_types.Shared(
                title=chat.title, view=exchange.viewer.view, created_at=round(share.created_at * 1000), events=events
            )
        )

    async def attachment(self, exchange: Exchange) -> None:
        """Send the content of an attachment of a question that a link shows."""
        exchange.response_headers += [header for header in PRIVATE_HEADERS if header[0] == b"x-robots-tag"]
        share, _ = await self._open(exchange)
        siblings = await self._services.store.chats.siblings(share.owner, share.chat_id)
        attachment = await load_attachment(
            self._services,
            share.owner,
            exchange.path_params["attachment_id"],
            "attachment_id",
            finished_turns=_branch(siblings, share.head),
        )
        await send_attachment(exchange, attachment)

    async def _open(self, exchange: Exchange) -> tuple[StoredShare, StoredChat]:
        """Return the link whose token is in the path, and its chat. Failed attempts are limited."""
        if not await are_links_on(self._services, exchange):
            raise _not_found()
        throttle = self._services.guard.login_throttle
        await throttle.take(exchange.scope, "to open a link")
        share = await self._services.store.shares.by_token(_hash(exchange.path_params["token"]))
        chat = await self._services.store.chats.get(share.owner, share.chat_id) if share is not None else None
        if share is None or chat is None:
            raise _not_found()
        await throttle.refund(exchange.scope)
        return share, chat


def _branch(siblings: Mapping[str | None, list[str]], head: str) -> set[str]:
    """Return the ids of the turns up to `head`, of a chat's turns by their `previous_id`."""
    previous = {id: previous_id for previous_id, ids in siblings.items() for id in ids}
    branch, at = set[str](), head
    while at in previous and at not in branch:
        branch.add(at)
        at = previous[at] or ""
    return branch


def _share(share: StoredShare) -> response_types.Share:
    return response_types.Share(
        id=share.id,
        head=share.head,
        view=parse_view(share.view),
        created_at=round(share.created_at * 1000),
        expires_at=UNSET if share.expires_at is None else round(share.expires_at * 1000),
    )


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()


def _not_found() -> RequestError:
    message = "there is nothing at this link: it was deleted or has expired, the chat was deleted, or links are off"
    return RequestError(message, kind="not_found", code="share_not_found")
