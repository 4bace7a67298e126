"""The spaces of an owner, for the page: list, create (also from a chat), enter as a new participant, and delete.

These routes take a key of the gateway or the page's session, not a participant's token. They do what `pellucid space
create`, `pellucid space add` and `pellucid space delete` do, so all but the list are for operators
(`Operation.is_operator_only`); without keys, the person at the gateway is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from ..envelopes import DEFAULT_DIALECT
from ..envelopes.payloads import WrittenCapability
from ..errors import PellucidError, RequestError
from ..protocols.chat import Answer, Question
from ..protocols.decoding import decode
from ..spaces.runtime.provisioning import add_participants, create_space
from ..spaces.runtime.settings import MAX_TOPIC_CHARS, SpaceSettings
from ..spaces.runtime.space import Space
from ..storage import AlreadyStored, SpaceNotFound, StoredSpace
from ..telemetry import log
from .chat.reader import read_chat
from .chat.space_envelopes import chat_envelopes, model_participants
from .exchange import Exchange
from .routing import VIEW, Handlers, Operation, Table, parameter
from .spaces.auth import PROTOCOL_NAME
from .spaces.history_handlers import send_uncached
from .spaces.space_handlers import SpaceList, space_listed

EVERYTHING: tuple[WrittenCapability, ...] = ("*",)
ANSWERING: tuple[WrittenCapability, ...] = ("chat", "reasoning/*")

_Participant = Annotated[str, Meta(description="The name of the person in the space.")]


class NewSpace(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /api/spaces`."""

    name: str
    participant: _Participant
    topic: Annotated[str, Meta(max_length=MAX_TOPIC_CHARS)] = ""
    conversation_id: Annotated[str, Meta(description="The chat whose shown branch begins the space.")] | None = None


class Entering(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /api/spaces/{name}/participants`."""

    participant: _Participant


class Entered(msgspec.Struct):
    name: str
    participant: str
    token: Annotated[str, Meta(description="The token of the participant. It cannot be read again.")]


class DeletedSpace(msgspec.Struct):
    name: str
    deleted: Literal[True] = True


class OwnedSpaceHandlers(Handlers):
    """Handlers of `/api/spaces`."""

    async def list(self, exchange: Exchange) -> None:
        """List the spaces of the caller's owner."""
        spaces = await self._services.store.spaces.list(exchange.principal.owner)
        rows = [
            msgspec.structs.replace(space_listed(space), configured=UNSET if space.origin == "made" else True)
            for space in spaces
        ]
        await send_uncached(exchange, SpaceList(rows))

    async def create(self, exchange: Exchange) -> None:
        """Create a space whose first participant may do everything in it."""
        body = decode(await exchange.read_body(self._services.config.server), NewSpace)
        events: Sequence[Question | Answer] = ()
        if body.conversation_id is not None:
            events = (await read_chat(self._services, exchange, body.conversation_id)).events
        names = model_participants(events, body.participant)
        participants = {body.participant: EVERYTHING, **dict.fromkeys(names.values(), ANSWERING)}
        spaces, owner = self._services.store.spaces, exchange.principal.owner
        try:
            tokens = await create_space(spaces, owner, body.name, SpaceSettings(topic=body.topic), participants)
        except AlreadyStored as error:
            raise RequestError(error.info.message, kind="conflict", code="space_exists", param="name") from None
        try:
            if events:
                space = await self._services.spaces.space(body.name)
                for sender, envelope in chat_envelopes(events, body.participant, names):
                    await _post(space, sender, envelope)
        except BaseException:
            # A space with half of a chat would look like the whole.
            await asyncio.shield(spaces.remove(owner, body.name))
            raise
        await send_uncached(exchange, Entered(body.name, body.participant, tokens[body.participant]))

    async def enter(self, exchange: Exchange) -> None:
        """Add a participant who may do everything, to a space of the caller's owner."""
        body = decode(await exchange.read_body(self._services.config.server), Entering)
        spaces, owner, name = self._services.store.spaces, exchange.principal.owner, exchange.path_params["name"]
        await self._own_space(exchange)
        space = await self._services.spaces.space(name)
        await space.catch_up()
        try:
            if space.is_member(body.participant):
                raise AlreadyStored(f"there is a participant {body.participant!r} already; choose another name")
            tokens = await add_participants(spaces, owner, name, {body.participant: EVERYTHING})
        except AlreadyStored as error:
            raise RequestError(error.info.message, kind="conflict", code="name_taken", param="participant") from None
        await send_uncached(exchange, Entered(name, body.participant, tokens[body.participant]))

    async def delete(self, exchange: Exchange) -> None:
        """Delete a space of the caller's owner with all its envelopes. Sessions in it end."""
        stored = await self._own_space(exchange)
        if stored.origin != "made":
            raise RequestError(
                f"the configuration file has the space {stored.name!r}, which would be there again after a restart; "
                "delete it there",
                kind="conflict",
                code="space_configured",
                param="name",
            )
        if not await self._services.store.spaces.remove(stored.owner, stored.name):
            raise SpaceNotFound(stored.name)
        log.warning("%s deleted the space %s", exchange.principal.log_name, stored.name)
        await send_uncached(exchange, DeletedSpace(stored.name))

    async def _own_space(self, exchange: Exchange) -> StoredSpace:
        """Return the space of the path. Raises `SpaceNotFound` if the caller's owner has none of this name."""
        name = exchange.path_params["name"]
        stored = await self._services.store.spaces.get(name)
        if stored is None or stored.owner != exchange.principal.owner:
            raise SpaceNotFound(name)
        return stored


_PATH = "/api/spaces"
_ERRORS = (400, 401, 403, 404, 408, 409, 413, 429, 500, 503)
TABLE = Table(
    [
        Operation(
            "GET", _PATH, OwnedSpaceHandlers.list, "listOwnedSpaces", "The spaces of the caller's owner", SpaceList
        ),
        Operation(
            "POST",
            _PATH,
            OwnedSpaceHandlers.create,
            "createSpace",
            "Create a space, also from a chat (operators)",
            Entered,
            [VIEW],
            NewSpace,
            is_operator_only=True,
            error_statuses=_ERRORS,
        ),
        Operation(
            "POST",
            f"{_PATH}/{{name}}/participants",
            OwnedSpaceHandlers.enter,
            "enterSpace",
            "Add a participant to a space of the caller's owner (operators)",
            Entered,
            request_body=Entering,
            is_operator_only=True,
            error_statuses=_ERRORS,
        ),
        Operation(
            "DELETE",
            f"{_PATH}/{{name}}",
            OwnedSpaceHandlers.delete,
            "deleteSpace",
            "Delete a space of the caller's owner with all its envelopes (operators)",
            DeletedSpace,
            is_operator_only=True,
            error_statuses=_ERRORS,
        ),
    ],
    protocol="openresponses",
    metrics_name=PROTOCOL_NAME,
    handlers=[OwnedSpaceHandlers],
    error_body="ErrorBody",
    error_statuses=(401, 403, 500, 503),
    path_parameters={"name": parameter("name", "path", "The space's name.")},
    component_prefix="Space",
)


async def _post(space: Space, sender: str, envelope: dict[str, Any]) -> None:
    """Post an envelope; wait when the space's limits say so."""
    while True:
        try:
            await space.post(sender, envelope, DEFAULT_DIALECT)
        except PellucidError as error:
            if error.info.kind != "too_many_requests" or error.info.retry_after is None:
                raise
            await asyncio.sleep(error.info.retry_after)
        else:
            return
