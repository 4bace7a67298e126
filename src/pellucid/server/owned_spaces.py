"""The spaces of an owner, for the page: list, create (also from a chat), enter as a new participant, and delete.

These routes take a key of the gateway or the page's session, not a participant's token. They do what `pellucid space
create`, `pellucid space add` and `pellucid space delete` do, so all but the list are for operators
(`Operation.is_operator_only`); without keys, the person at the gateway is one.

A chat becomes the first envelopes of a space as its reader may see it: questions by the person, answers by a
participant with the model's name, reasoning as a context of its own, each with the time that it has in the chat. Sealed
reasoning is a context without text; hidden reasoning is none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta
from starlette.routing import BaseRoute

from ..envelopes.payloads import WrittenCapability
from ..errors import PellucidError, RequestError
from ..protocols.chat import Answer, Question
from ..protocols.chat import types as chat
from ..protocols.decoding import decode
from ..spaces.runtime.provisioning import add_participants, create_space
from ..spaces.runtime.settings import MAX_TOPIC_CHARS, SpaceSettings
from ..spaces.runtime.space import Space
from ..storage import AlreadyStored, SpaceNotFound, StoredSpace
from ..telemetry import log
from .chat.conversations import title_of
from .chat.reader import read_chat
from .exchange import Exchange, endpoint_maker
from .routing import VIEW, Operation, Table, parameter
from .services import Services
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


class OwnedSpaceHandlers:
    """Handlers of `/api/spaces`."""

    def __init__(self, services: Services) -> None:
        self._services = services

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
        names = _model_names(events, body.participant)
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
        who = exchange.principal.key_id or exchange.principal.owner or "an operator"
        log.warning("%s deleted the space %s", who, stored.name)
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
    error_body="ErrorBody",
    error_statuses=(401, 403, 500, 503),
    path_parameters={"name": parameter("name", "path", "The space's name.")},
    component_prefix="Space",
)


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes of an owner's spaces."""
    make_endpoint = endpoint_maker("openresponses", lambda: services.guard, PROTOCOL_NAME)
    return TABLE.routes([OwnedSpaceHandlers(services)], make_endpoint)


async def _post(space: Space, sender: str, envelope: dict[str, Any]) -> None:
    """Post an envelope; wait when the space's limits say so."""
    while True:
        try:
            await space.post(sender, envelope, "mew/v0.4")
        except PellucidError as error:
            if error.info.kind != "too_many_requests" or error.info.retry_after is None:
                raise
            await asyncio.sleep(error.info.retry_after)
        else:
            return


def _model_names(events: Sequence[Question | Answer], person: str) -> dict[str, str]:
    """Return a participant's id for each model of a chat."""
    names: dict[str, str] = {}
    for event in events:
        if isinstance(event, Answer) and event.model not in names:
            name = re.sub(r"\s+", "-", event.model.strip())[:200] or "model"
            taken = {person, *names.values()}
            while name in taken:
                name = f"{name}-model"
            names[event.model] = name
    return names


def chat_envelopes(
    events: Sequence[Question | Answer], person: str, names: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sender and the envelope of everything that a reader sees of a chat, in order.

    Args:
        events: The chat's events, redacted for the reader.
        person: The participant who asked.
        names: The participants who answered, by model.
    """
    question: Question | None = None
    for event in events:
        if isinstance(event, Question):
            question = event
            text = "\n\n".join(segment.text for segment in event.segments)
            yield person, {"kind": "chat", "id": event.id, "ts": event.created_at, "payload": {"text": text}}
        elif question is not None and event.status != "in_progress":
            yield from ((names[event.model], envelope) for envelope in _answer_envelopes(event, question))


def _answer_envelopes(answer: Answer, question: Question) -> Iterator[dict[str, Any]]:
    about = [question.id]
    steps = [one for one in answer.segments if not isinstance(one, _CONTENT)]
    if steps:
        context = f"{answer.id}-reasoning"
        title = title_of("\n\n".join(segment.text for segment in question.segments))
        spans = {span.segment_id: span for span in answer.timeline or ()}
        times = [span for step in steps if (span := spans.get(step.id)) is not None]
        now = min((span.started_at for span in times), default=answer.created_at)
        end = max((span.ended_at for span in times), default=now)
        yield {
            "kind": "reasoning/start",
            "id": context,
            "correlation_id": about,
            "ts": now,
            "payload": {"message": title},
        }
        for step in sorted(steps, key=lambda one: one.sequence_number):
            for kind, created_at, payload in _step_payloads(step):
                now = max(now, min(created_at, end))
                yield {"kind": f"reasoning/{kind}", "context": context, "ts": now, "payload": payload}
        yield {"kind": "reasoning/conclusion", "context": context, "ts": end, "payload": {}}
        about = [question.id, context]
    texts = [one.text for one in answer.segments if isinstance(one, chat.TextSegment | chat.RefusalSegment)]
    text = "\n\n".join(one for one in texts if one)
    if text:
        ended_at = answer.completed_at or answer.created_at
        yield {
            "kind": "chat",
            "correlation_id": about,
            "ts": ended_at,
            "payload": {"text": text, "format": "markdown"},
        }


_CONTENT = (chat.TextSegment, chat.RefusalSegment, chat.FileSegment)


def _step_payloads(step: Any) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield the thoughts of a stretch of reasoning, or what a tool was called with and returned, with their times.

    A call is no request here: a participant that joins must not carry it out.
    """
    if isinstance(step, chat.ReasoningSegment):
        for part in sorted(step.parts, key=lambda one: one.summary_index):
            if part.text:
                yield "thought", part.created_at, {"message": part.text}
        return
    details = {"arguments": step.args}
    if step.result is not msgspec.UNSET:
        details["result"] = step.result
    if step.error is not msgspec.UNSET:
        details["error"] = step.error
    yield "observation", step.created_at, {"message": step.name, "details": details}
