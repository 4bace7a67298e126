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
from ...spaces.runtime.ids import PREFIX, digest_of
from ...spaces.runtime.settings import SpaceSettings
from ...spaces.runtime.space import Member
from ...storage import StoredSpace
from ..access.credentials import credential
from ..access.errors import forbidden, unauthorized
from ..access.policy import Principal
from ..exchange import Exchange
from ..services import Services
from . import asked
from .door import Inside
from .reading import tell, told


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


_Written = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/SpaceEnvelope"})]
"""An envelope in its reader's dialect."""


class SpacePosted(msgspec.Struct):
    id: str
    seq: int
    status: Literal["accepted"]
    timestamp: str
    flags: Sequence[Flag] | UnsetType = UNSET
    answers: list[_Written] | UnsetType = UNSET


class MewParticipants(msgspec.Struct):
    space: str
    participants: Sequence[Member]


class MewError(msgspec.Struct):
    error: str
    message: str


class MewForm:
    """How MEW says what was wrong."""

    def error_body(self, error: ErrorInfo) -> dict[str, Any]:
        return msgspec.structs.asdict(MewError(error.code or error.kind, error.message))

    def status_of(self, error: ErrorInfo) -> int:
        return errors.status_of(error)


class Mew:
    def __init__(self, services: Services) -> None:
        self._post = Endpoints(services).post

    async def message(self, exchange: Exchange, inside: Inside) -> None:
        """An envelope, from the participant whose token it is."""
        named = exchange.params["id"]
        if named != inside.participant:
            raise forbidden(
                f"this token is {inside.participant!r}'s, who cannot speak as {named!r}", "sender_mismatch", "id"
            )
        await self._post(exchange, inside)

    async def participants(self, exchange: Exchange, inside: Inside) -> None:
        """Who may come in, and who is there."""
        await exchange.answer(MewParticipants(inside.space.name, inside.space.members()))


_SECRET = ("redact", "always")
"""What of a space's settings is the operator's alone: patterns say what they look for."""


class Endpoints:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def spaces(self, exchange: Exchange) -> None:
        """Those that a token belongs to; or all of the owner's, to whom the gateway lets in."""
        text = credential(exchange.scope)
        mine = await self._services.store.spaces.of_token(digest_of(text)) if text is not None else ()
        if mine:
            mine = tuple([(space, who) for space, who in mine if await self._opens(space.name, text)])
            if not mine:
                raise RequestError("you are in no space any more", kind="forbidden", code="not_a_member")
            exchange.principal = exchange.watch.principal = Principal(mine[0][0].owner, None, mine[0][1].id)
            rows = [_listed(space, who.id) for space, who in mine]
        else:
            if text is not None and text.startswith(PREFIX):
                raise unauthorized("this token belongs to no space here", "invalid_token")
            exchange.principal = exchange.watch.principal = await self._services.guard.admit(exchange.scope)
            rows = [_listed(space) for space in await self._services.store.spaces.list(exchange.principal.owner)]
        await tell(exchange, SpaceList(sorted(rows, key=lambda row: row.name)))

    async def _opens(self, name: str, token: str | None) -> bool:
        """Whether the token still does, or its participant was put out."""
        try:
            await self._services.spaces.admit(name, token or "")
        except RequestError:
            return False
        return True

    async def space(self, exchange: Exchange, inside: Inside) -> None:
        """One, as its participants see it."""
        space = inside.space
        you, members = space.you(inside.participant), space.members()
        await tell(exchange, Space(space.name, space.head, _settings(space.settings), you, members))

    async def post(self, exchange: Exchange, inside: Inside) -> None:
        """Say something. The answer comes when it is stored."""
        body = await exchange.body(self._services.config.server)
        posted = await inside.space.post(
            inside.participant, body, asked.dialect(exchange), address=asked.address(exchange)
        )
        envelope, flags = posted.stored.envelope, posted.stored.told.flags
        answer = SpacePosted(envelope.id, envelope.seq, "accepted", time_text(posted.stored.at), flags or UNSET)
        if posted.answers:
            dialect = asked.dialect(exchange) or envelope.dialect
            answer.answers = [write(one, dialect) for one in posted.answers]
        await tell(exchange, answer)


def _listed(space: StoredSpace, participant: str | UnsetType = UNSET) -> SpaceListed:
    return SpaceListed(space.name, space.head, time_text(int(space.created_at * 1000)), participant)


def _settings(settings: SpaceSettings) -> dict[str, Any]:
    """As participants may know them, with the defaults."""
    shown: dict[str, Any] = told(settings)
    return {name: value for name, value in shown.items() if name not in _SECRET}
