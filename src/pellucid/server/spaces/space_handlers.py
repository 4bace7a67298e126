"""Handlers of spaces over HTTP: the list of spaces, the members of a space, and posting an envelope.

MEW's own paths are served, too: `POST /participants/{id}/messages` and `GET /participants`. Without `?space=NAME`, the
token decides. Clients of MEW expect errors as `{"error": CODE, "message": …}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from ...envelopes import time_text, write
from ...envelopes.envelope import EnvelopeError, Flag
from ...envelopes.kinds import is_reserved
from ...envelopes.payloads import Present
from ...errors import PellucidError, RequestError
from ...protocols.errors import ErrorFormat
from ...spaces.runtime.ids import TOKEN_PREFIX, digest_of
from ...spaces.runtime.settings import SpaceSettings, read_settings
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
    topic: str | UnsetType = UNSET
    configured: Annotated[
        Literal[True] | UnsetType,
        Meta(description="`/api/spaces` only: the configuration file has it, and it is deleted there."),
    ] = UNSET


class SpaceList(msgspec.Struct):
    spaces: list[SpaceListed]


class Space(msgspec.Struct):
    name: str
    head: Annotated[int, Meta(description="The number of the newest envelope.")]
    settings: dict[str, Any]
    you: Present
    participants: Sequence[Member]


_EncodedEnvelope = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/SpaceEnvelope"})]
"""An envelope in the reader's dialect."""


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


MEW_ERROR_FORMAT = ErrorFormat(lambda error: msgspec.structs.asdict(MewError(error.code or error.kind, error.message)))


class MEWHandlers:
    """Handlers of MEW's paths."""

    def __init__(self, services: Services) -> None:
        self._space_handlers = SpaceHandlers(services)

    async def message(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Post an envelope from the participant with this token.

        A refusal is sent to the participant's sockets, too, as MEW does: its clients post over HTTP and read there.
        """
        sender = exchange.path_params["id"]
        if sender != authenticated.participant:
            raise forbidden(
                f"this token belongs to {authenticated.participant!r}, who cannot send as {sender!r}",
                "sender_mismatch",
                "id",
            )
        try:
            await self._space_handlers.post(exchange, authenticated, notify_sessions=True)
        except EnvelopeError as error:
            if is_reserved(error.attempted_kind or ""):
                # MEW answers 400 to what only the gateway sends.
                raise PellucidError(replace(error.info, kind="invalid_request")) from None
            raise

    async def participants(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """List the members of the space, and whether they are present."""
        await exchange.send_json(MewParticipants(authenticated.space.name, authenticated.space.members()))


_OPERATOR_SETTINGS = ("redact", "always")
"""Settings of a space that only the operator may see: patterns reveal what they look for."""


class SpaceHandlers:
    """Handlers of `/spaces` and `/spaces/{name}`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def spaces(self, exchange: Exchange) -> None:
        """List the spaces of a participant's token, or those of the owner of a gateway's key."""
        text = credential(exchange.scope)
        memberships = await self._services.store.spaces.find_by_token(digest_of(text)) if text is not None else ()
        if memberships:
            memberships = tuple(
                [(space, member) for space, member in memberships if await self._is_admitted(space.name, text)]
            )
            if not memberships:
                raise RequestError("you are not a member of any space any more", kind="forbidden", code="not_a_member")
            exchange.principal = exchange.telemetry.principal = Principal(
                memberships[0][0].owner, None, memberships[0][1].id
            )
            rows = [space_listed(space, member.id) for space, member in memberships]
        else:
            if text is not None and text.startswith(TOKEN_PREFIX):
                raise unauthorized("this token belongs to no space here", "invalid_token")
            exchange.principal = exchange.telemetry.principal = await self._services.guard.admit(exchange.scope)
            rows = [space_listed(space) for space in await self._services.store.spaces.list(exchange.principal.owner)]
        await send_uncached(exchange, SpaceList(sorted(rows, key=lambda row: row.name)))

    async def _is_admitted(self, name: str, token: str | None) -> bool:
        """Return whether the token still opens the space: its participant may have been removed."""
        try:
            await self._services.spaces.admit(name, token or "")
        except RequestError:
            return False
        return True

    async def space(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Return a space as its participants see it."""
        space = authenticated.space
        you, members = space.presence_of(authenticated.participant), space.members()
        await send_uncached(exchange, Space(space.name, space.head, _visible_settings(space.settings), you, members))

    async def post(
        self, exchange: Exchange, authenticated: AuthenticatedParticipant, *, notify_sessions: bool = False
    ) -> None:
        """Post an envelope. The response is sent when it is stored."""
        body = await exchange.read_body(self._services.config.server)
        posted = await authenticated.space.post(
            authenticated.participant,
            body,
            space_query.dialect_param(exchange),
            address=space_query.gateway_url(exchange),
            notify_sessions=notify_sessions,
        )
        envelope, flags = posted.stored.envelope, posted.stored.with_flags.flags
        answer = SpacePosted(envelope.id, envelope.seq, "accepted", time_text(posted.stored.at), flags or UNSET)
        if posted.answers:
            dialect = space_query.dialect_param(exchange) or envelope.dialect
            answer.answers = [write(one, dialect) for one in posted.answers]
        await send_uncached(exchange, answer)


def space_listed(space: StoredSpace, participant: str | UnsetType = UNSET) -> SpaceListed:
    """Return a space as a line of a list."""
    topic = read_settings(space.settings).topic
    return SpaceListed(space.name, space.head, time_text(int(space.created_at * 1000)), participant, topic or UNSET)


def _visible_settings(settings: SpaceSettings) -> dict[str, Any]:
    """Return the settings that participants may see, with defaults."""
    values: dict[str, Any] = to_json_value(settings)
    return {name: value for name, value in values.items() if name not in _OPERATOR_SETTINGS}
