"""A space as HTTP has it: which there are, who is in one, and saying something in it.

The paths of MEW's own gateway: `POST /participants/{id}/messages?space=` and `GET /participants?space=`.

Its clients read errors as `{"error": CODE, "message": …}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...envelopes import time_text, write
from ...envelopes.envelope import Flag
from ...envelopes.payloads import Present
from ...errors import ErrorInfo, RequestError
from ...protocols import errors
from ...spaces.runtime.ids import TOKEN_PREFIX, digest_of
from ...spaces.runtime.settings import SpaceSettings
from ...spaces.runtime.space import Member
from ...storage import StoredSpace
from ..access.credentials import credential
from ..access.errors import forbidden, unauthorized
from ..access.policy import Principal
from ..exchange import Exchange
from ..services import Services
from . import space_query
from .auth import AuthenticatedParticipant
from .history_handlers import send_uncached, to_json_value


class SpaceListed(msgspec.Struct):
    name: str
    head: int
    created_at: str
    participant: str | UnsetType = UNSET


class SpaceList(msgspec.Struct):
    spaces: list[SpaceListed]


class Space(msgspec.Struct):
    name: str
    head: Annotated[int, Meta(description="The number of the newest envelope.")]
    settings: dict[str, Any]
    you: Present
    participants: Sequence[Member]


_EncodedEnvelope = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/SpaceEnvelope"})]
"""An envelope in its reader's dialect."""


class SpacePosted(msgspec.Struct):
    id: str
    seq: int
    status: Literal["accepted"]
    timestamp: str
    flags: Sequence[Flag] | UnsetType = UNSET
    answers: list[_EncodedEnvelope] | UnsetType = UNSET


class MewParticipants(msgspec.Struct):
    space: str
    participants: Sequence[Member]


class MewError(msgspec.Struct):
    error: str
    message: str


class MEWErrorForm:
    """How MEW says what was wrong."""

    def error_body(self, error: ErrorInfo) -> dict[str, Any]:
        return msgspec.structs.asdict(MewError(error.code or error.kind, error.message))

    def status_of(self, error: ErrorInfo) -> int:
        return errors.status_of(error)


class MEWHandlers:
    def __init__(self, services: Services) -> None:
        self._post = SpaceHandlers(services).post

    async def message(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """An envelope, from the participant whose token it is."""
        sender = exchange.path_params["id"]
        if sender != authenticated.participant:
            raise forbidden(
                f"this token is {authenticated.participant!r}'s, who cannot speak as {sender!r}",
                "sender_mismatch",
                "id",
            )
        await self._post(exchange, authenticated)

    async def participants(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Who may come in, and who is there."""
        await exchange.send_json(MewParticipants(authenticated.space.name, authenticated.space.members()))


_OPERATOR_SETTINGS = ("redact", "always")
"""What of a space's settings is the operator's alone: patterns say what they look for."""


class SpaceHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def spaces(self, exchange: Exchange) -> None:
        """Those that a token belongs to; or all of the owner's, to whom the gateway lets in."""
        text = credential(exchange.scope)
        memberships = await self._services.store.spaces.find_by_token(digest_of(text)) if text is not None else ()
        if memberships:
            memberships = tuple(
                [(space, member) for space, member in memberships if await self._is_admitted(space.name, text)]
            )
            if not memberships:
                raise RequestError("you are in no space any more", kind="forbidden", code="not_a_member")
            exchange.principal = exchange.telemetry.principal = Principal(
                memberships[0][0].owner, None, memberships[0][1].id
            )
            rows = [_space_listed(space, member.id) for space, member in memberships]
        else:
            if text is not None and text.startswith(TOKEN_PREFIX):
                raise unauthorized("this token belongs to no space here", "invalid_token")
            exchange.principal = exchange.telemetry.principal = await self._services.guard.admit(exchange.scope)
            rows = [_space_listed(space) for space in await self._services.store.spaces.list(exchange.principal.owner)]
        await send_uncached(exchange, SpaceList(sorted(rows, key=lambda row: row.name)))

    async def _is_admitted(self, name: str, token: str | None) -> bool:
        """Whether the token still does, or its participant was put out."""
        try:
            await self._services.spaces.admit(name, token or "")
        except RequestError:
            return False
        return True

    async def space(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """One, as its participants see it."""
        space = authenticated.space
        you, members = space.presence_of(authenticated.participant), space.members()
        await send_uncached(exchange, Space(space.name, space.head, _visible_settings(space.settings), you, members))

    async def post(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Say something. The answer comes when it is stored."""
        body = await exchange.read_body(self._services.config.server)
        posted = await authenticated.space.post(
            authenticated.participant,
            body,
            space_query.dialect_param(exchange),
            address=space_query.gateway_url(exchange),
        )
        envelope, flags = posted.stored.envelope, posted.stored.with_flags.flags
        answer = SpacePosted(envelope.id, envelope.seq, "accepted", time_text(posted.stored.at), flags or UNSET)
        if posted.answers:
            dialect = space_query.dialect_param(exchange) or envelope.dialect
            answer.answers = [write(one, dialect) for one in posted.answers]
        await send_uncached(exchange, answer)


def _space_listed(space: StoredSpace, participant: str | UnsetType = UNSET) -> SpaceListed:
    return SpaceListed(space.name, space.head, time_text(int(space.created_at * 1000)), participant)


def _visible_settings(settings: SpaceSettings) -> dict[str, Any]:
    """As participants may know them, with the defaults."""
    values: dict[str, Any] = to_json_value(settings)
    return {name: value for name, value in values.items() if name not in _OPERATOR_SETTINGS}
