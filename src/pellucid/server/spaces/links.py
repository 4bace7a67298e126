"""Links that invite to a space: the page makes them, and their recipients join with them.

    POST /spaces/NAME/links        by a participant who may invite: a link for a new participant, with rights and an end
    POST /spaces/NAME/invitation   with no credentials but the link: what the link gives, and whether it still does
    POST /spaces/NAME/join         with no credentials but the link: the token of that participant

* A link is encrypted and bound to its space; the gateway stores nothing of it. The page puts it behind `#` in an
  address, the part that browsers send to no server.
* To join is to be invited: the inviter's `space/invite` is posted at that moment. No link gives more than the inviter
  holds, neither when it is made nor when it is used, and its rights end with those of the inviter.
* A link works once. The invitation has the link's id and time, so a second use is a repeated envelope, which the space
  answers without a token, on any replica.
"""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from msgspec import Meta

from ...envelopes import DEFAULT_DIALECT, Envelope, time_text
from ...envelopes.envelope import check_participant
from ...envelopes.kinds import INVITE
from ...errors import PellucidError, RequestError
from ...protocols.decoding import decode
from ...sealing import SealError, decrypt, encrypt
from ...spaces.runtime.space import Space
from ..access.errors import forbidden
from ..access.policy import Principal
from ..exchange import Exchange
from ..services import Services
from . import space_query
from .auth import AuthenticatedParticipant
from .history_handlers import send_uncached

Right = Literal["read", "talk", "propose", "approve"]

RIGHTS: dict[Right, tuple[str, ...]] = {
    "read": (),
    "talk": ("chat", "chat/*"),
    "propose": ("mcp/proposal", "mcp/withdraw"),
    "approve": ("mcp/request", "mcp/reject"),
}
"""The capabilities of each right. Every participant may read; `_capabilities` adds what the space requires for it."""

DAY_SECONDS = 24 * 60 * 60


class NewLink(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /spaces/{name}/links`."""

    participant: Annotated[str, Meta(description="The name that the link gives.")]
    rights: Annotated[list[Right], Meta(description="What the participant may do.")] = msgspec.field(
        default_factory=lambda: ["read", "talk"]
    )
    expires_in_seconds: Annotated[int, Meta(ge=60, le=30 * DAY_SECONDS)] = 7 * DAY_SECONDS


class Link(msgspec.Struct):
    link: Annotated[str, Meta(description="It goes behind `#join=` in the address of the space.")]
    participant: str
    capabilities: list[str]
    expires_at: str


class LinkRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /spaces/{name}/invitation` and `POST /spaces/{name}/join`."""

    link: str


class Invitation(msgspec.Struct):
    """What a link gives."""

    participant: Annotated[str, Meta(description="The name that the link gives.")]
    invited_by: str
    rights: Annotated[list[Right], Meta(description="What the participant may do.")]
    expires_at: str


class Joined(msgspec.Struct):
    participant: str
    token: Annotated[str, Meta(description="The token of the participant. It cannot be read again.")]


class _LinkContent(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The content of a link."""

    inviter: str
    participant: str
    capabilities: list[str]
    id: str
    made_at_ms: int
    expires_at_ms: int

    def envelope(self) -> dict[str, Any]:
        """Return the same envelope at each use."""
        payload = {"participant_id": self.participant, "initial_capabilities": self.capabilities}
        return {"kind": INVITE, "id": self.id, "ts": time_text(self.made_at_ms), "payload": payload}

    def draft(self) -> Envelope:
        """Return the envelope to check."""
        payload = self.envelope()["payload"]
        return Envelope(id=self.id, sender=self.inviter, kind=INVITE, ts=self.made_at_ms, payload=payload)


class LinkHandlers:
    """Handlers of links."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def make(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Make a link. Refuse what its maker could not give."""
        body = decode(await exchange.read_body(self._services.config.server), NewLink)
        check_participant(body.participant)
        space, now_ms = authenticated.space, round(time.time() * 1000)
        capabilities = _capabilities(body.rights, space)
        invitation = _LinkContent(
            authenticated.participant,
            body.participant,
            capabilities,
            f"link-{secrets.token_urlsafe(16)}",
            now_ms,
            now_ms + body.expires_in_seconds * 1000,
        )
        space.check_invitation(invitation.draft())
        content = msgspec.json.encode(invitation)
        link = encrypt(content, self._services.seal_keys(), tenant=space.owner, context=await self._context(space))
        answer = Link(link, body.participant, capabilities, time_text(invitation.expires_at_ms))
        await send_uncached(exchange, answer)

    async def read_invitation(self, exchange: Exchange) -> None:
        """Send what a link gives, without using it. Refuse a link that `join` would refuse."""
        space, invitation = await self._open(exchange)
        try:
            space.check_invitation(invitation.draft())
        except PellucidError as error:
            raise (_name_taken_error if error.info.code == "name_taken" else _link_revoked_error)(invitation) from None
        await self._refund(exchange)
        rights = [right for right, needed in RIGHTS.items() if set(needed) <= set(invitation.capabilities)]
        answer = Invitation(invitation.participant, invitation.inviter, rights, time_text(invitation.expires_at_ms))
        await send_uncached(exchange, answer)

    async def join(self, exchange: Exchange) -> None:
        """Exchange a link for the token of its participant."""
        space, invitation = await self._open(exchange)
        try:
            posted = await space.post(
                invitation.inviter, invitation.envelope(), DEFAULT_DIALECT, address=space_query.gateway_url(exchange)
            )
        except PellucidError as error:
            if error.info.kind in ("forbidden", "invalid_request", "not_found"):
                raise _link_revoked_error(invitation) from None
            raise
        if not posted.answers:
            raise _link_used_error()
        token = posted.answers[0].payload.get("token")
        if not isinstance(token, str):
            raise _name_taken_error(invitation)
        await self._refund(exchange)
        await send_uncached(exchange, Joined(invitation.participant, token))

    async def _open(self, exchange: Exchange) -> tuple[Space, _LinkContent]:
        """Return the space and the content of the request's link. Refuse one that has expired, or was used.

        Attempts that do not succeed are limited, for each address; who succeeds must call `_refund`.
        """
        await self._services.guard.login_throttle.take(exchange.scope, "to use a link")
        body = decode(await exchange.read_body(self._services.config.server), LinkRequest)
        try:
            space = await self._services.spaces.space(exchange.path_params["name"])
            context = await self._context(space)
            content = decrypt(body.link, self._services.seal_keys(), tenant=space.owner, context=context)
            invitation = msgspec.json.decode(content, type=_LinkContent)
        except (RequestError, SealError, msgspec.MsgspecError, UnicodeError):
            _raise_invalid()
        exchange.principal = exchange.telemetry.principal = Principal(space.owner, None, invitation.participant)
        if time.time() * 1000 >= invitation.expires_at_ms:
            raise forbidden("this link has expired; ask for a new one", "link_expired", "link")
        if await self._services.store.spaces.get_envelope_by_id(space.owner, space.name, invitation.id) is not None:
            raise _link_used_error()
        await space.catch_up()
        return space, invitation

    async def _refund(self, exchange: Exchange) -> None:
        await self._services.guard.login_throttle.refund(exchange.scope)

    async def _context(self, space: Space) -> str:
        """Return what a link is bound to: this space, and no later one of the same name."""
        stored = await self._services.store.spaces.get(space.name)
        if stored is None:
            _raise_invalid()
        return f"space-link {space.name} {stored.created_at!r}"


def _capabilities(rights: list[Right], space: Space) -> list[str]:
    capabilities = [one for right in RIGHTS if right in rights for one in RIGHTS[right]]
    return ["reasoning/read", *capabilities] if space.settings.read_reasoning == "capability" else capabilities


def _link_used_error() -> PellucidError:
    return forbidden("this link has been used; each link admits one participant, once", "link_used", "link")


def _link_revoked_error(invitation: _LinkContent) -> PellucidError:
    return forbidden(
        f"{invitation.inviter!r}, who made this link, may not give these rights any more", "link_revoked", "link"
    )


def _name_taken_error(invitation: _LinkContent) -> PellucidError:
    return RequestError(
        f"there is a participant called {invitation.participant!r} already; ask for a link with another name",
        kind="conflict",
        code="name_taken",
        param="link",
    )


def _raise_invalid() -> NoReturn:
    # The same whether the space exists or not.
    raise forbidden(
        "this link does not open this space: it is damaged, or belongs to another one", "invalid_link", "link"
    )
