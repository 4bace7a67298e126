"""Attachments of questions: taken from earlier questions, checked for a model, and sent to their readers.

`GET /api/attachments/{id}` sends the content to its owner; who has a link to a chat reads those that it shows
(`sharing`). The content came from a client, so a browser must not run it: images are shown, everything else is
downloaded, and nothing in it may run or load anything.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from ...asgi import http
from ...models import ChatModel
from ...offload import json_weight, offload
from ...parts import ModelMessage, ModelRequest, UserPromptPart, messages_from_json
from ...protocols.chat import (
    PROTOCOL,
    Attachment,
    Limits,
    Request,
    StoredAttachment,
    attachment_not_found,
    check_total,
    download_of,
    medium_of,
    parse_attachment_id,
    question_id,
    stored_attachments,
)
from ...protocols.decoding import invalid
from ..exchange import Exchange
from ..routing import Handlers
from ..services import Services
from ..stored_runs import find_row


class InputItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The input of a turn: the question, as it is stored."""

    id: str
    type: str = "message"
    role: str = "user"
    content: str
    attachments: list[StoredAttachment] = []


_decode_items = msgspec.json.Decoder(list[InputItem]).decode


def encode_input(event_id: str, request: Request) -> bytes:
    """Return the input of the turn with this id."""
    attachments = [
        StoredAttachment(one.name, one.media_type, one.size) for one in request.attachments if not isinstance(one, str)
    ]
    item = InputItem(id=question_id(event_id), content=request.body.text, attachments=attachments)
    return msgspec.json.encode([item])


def decode_input(data: bytes) -> InputItem:
    """Return the question in the input of a turn."""
    [item] = _decode_items(data)
    return item


def limits_for(services: Services, exchange: Exchange) -> Limits:
    """Return the limits of attachments for the caller."""
    return Limits.within(exchange.principal.policy.body_limit(services.config.server.max_body_bytes))


async def with_stored_attachments(services: Services, owner: str, request: Request, limits: Limits) -> Request:
    """Return the request with copies of the earlier attachments that it names, which may be those of another chat.

    Raises:
        RequestError: One does not exist, or belongs to another owner; or they are too large together.
    """
    loaded: dict[str, list[Attachment]] = {}
    attachments = [
        await load_attachment(services, owner, one, f"attachments[{index}]", loaded=loaded)
        if isinstance(one, str)
        else one
        for index, one in enumerate(request.attachments)
    ]
    check_total(attachments, limits)
    return request.with_attachments(attachments)


async def load_attachment(
    services: Services,
    owner: str,
    id: str,
    param: str,
    *,
    finished_turns: Container[str] | None = None,
    loaded: dict[str, list[Attachment]] | None = None,
) -> Attachment:
    """Return a stored attachment.

    Args:
        services: The gateway's services.
        owner: The owner of the attachment.
        id: The attachment's id.
        param: The parameter of the request that has the id.
        finished_turns: The turns whose attachments may be read, when they have ended; None: those of all turns.
        loaded: The attachments of turns that were loaded before, to which those of this turn are added.

    Raises:
        RequestError: It does not exist, belongs to another owner, or may not be read; the message is the same.
    """
    loaded = {} if loaded is None else loaded
    not_found = attachment_not_found(id, param)
    parsed = parse_attachment_id(id)
    if parsed is None or (finished_turns is not None and parsed[0] not in finished_turns):
        raise not_found
    event_id, place = parsed
    if event_id not in loaded:
        row = await find_row(services, owner, event_id, PROTOCOL, not_found)
        if finished_turns is not None and not row.is_finished:
            raise not_found
        messages = await offload(json_weight(row.messages), messages_from_json, row.messages)
        loaded[event_id] = stored_attachments(decode_input(row.input).attachments, messages)
    if place >= len(loaded[event_id]):
        raise not_found
    return loaded[event_id][place]


_MEDIA_NAMES = {"image": "images", "pdf": "PDF documents"}


def check_media(
    services: Services, request: Request, name: str, model: ChatModel, messages: list[ModelMessage]
) -> None:
    """Check that a model takes what the conversation holds, as far as that is known.

    Args:
        services: The gateway's services.
        request: The question.
        name: The model's public name.
        model: The model.
        messages: The conversation, with the question.

    Raises:
        RequestError: The model does not take an attachment of the question, or an earlier one.
    """
    accepted = services.catalog.accepted_media(model)
    if accepted is None:
        return
    new = {medium_of(one.content) for one in request.attachments if not isinstance(one, str)}
    contents = (
        content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
        for content in part.content
    )
    for content in contents:
        medium = medium_of(content)
        if medium is not None and medium not in accepted:
            what = _MEDIA_NAMES[medium]
            problem = (
                f"the model {name!r} takes no {what}; choose another model, or leave them out"
                if medium in new
                else f"this conversation has {what}, and the model {name!r} takes none; choose another model, or begin "
                "a new chat"
            )
            raise invalid("attachments", problem, "unsupported_attachment", kind="unsupported")


class AttachmentHandler(Handlers):
    """Handler of `GET /api/attachments/{id}`."""

    async def read(self, exchange: Exchange) -> None:
        """Send the content of an attachment to its owner."""
        attachment = await load_attachment(
            self._services, exchange.principal.owner, exchange.path_params["attachment_id"], "attachment_id"
        )
        await send_attachment(exchange, attachment)


async def send_attachment(exchange: Exchange, attachment: Attachment) -> None:
    """Send the content of an attachment, so that a browser does not run it."""
    download = await offload(attachment.size // 256, download_of, attachment)
    is_image = medium_of(attachment.content) == "image"
    exchange.response_headers += [
        http.content_disposition("inline" if is_image else "attachment", download.name),
        (b"content-security-policy", b"default-src 'none'; sandbox"),
        (b"x-content-type-options", b"nosniff"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"private, no-store"),
    ]
    text = "; charset=utf-8" if download.media_type.startswith("text/") else ""
    await exchange.send_text(download.data, f"{download.media_type}{text}")
