"""`POST /v1/responses/compact`: a conversation, told again in less, in an item that only this gateway can read.

The model itself writes what must not be lost. What it wrote is sealed: a client gives the item back instead of what it
stands for, to any replica, and any model goes on from it. Nothing is kept here.
"""

from __future__ import annotations

import time

from msgspec.structs import replace

from ...asgi.streaming import read_to_end
from ...conversation import joined
from ...errors import ErrorInfo, PellucidError, RequestError
from ...fold import Fold
from ...parts import CompactionPart, ModelRequest, ModelResponse, Usage, UserPromptPart
from ...protocols.openresponses import read_json, request_of
from ...protocols.openresponses import types as t
from ...protocols.openresponses.encode import usage_of
from ...runs import Batch, RunSource
from ...sealing import Sealed
from ...settings import ToolChoice
from ...view import redact_usage
from ..exchange import Exchange, new_minter
from ..services import Services
from .asking import asking_for

EMPTY = ErrorInfo("model_error", "the model wrote nothing to stand for the conversation", code="empty_compaction")
CUT = ErrorInfo(
    "model_error",
    "the model did not finish what is to stand for the conversation, so that something would be missing from it",
    code="incomplete_compaction",
)
INSTRUCTIONS = (
    "Write a summary of the conversation so far that can stand in its place: someone who reads only it must be able to "
    "go on. Keep every fact, decision, name, number, open question and instruction that may matter, and what was tried "
    "and came of it. Write plain prose, no greeting, nothing about this task."
)


class Compact:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, exchange: Exchange) -> None:
        services, principal = self._services, exchange.principal
        raw = read_json(await exchange.body(services.config.server))
        if not isinstance(raw.get("model"), str):
            raise RequestError("model: required: who is to tell it again", code="missing", param="model")
        known = ("model", "input", "previous_response_id", "instructions", "prompt_cache_key")
        request = request_of({**{name: raw[name] for name in known if raw.get(name) is not None}, "store": False})
        mint = new_minter()
        asking = await asking_for(services, exchange, request, mint)
        assert asking.call is not None
        messages = joined(asking.call.messages, [ModelRequest([UserPromptPart(INSTRUCTIONS)])])
        call = replace(asking.call, messages=messages, tools=(), tool_choice=ToolChoice())
        text, usage = await _written(exchange, asking.prepared.run(call, (), seals=False))
        sealed = Sealed([CompactionPart(text)], asking.model.origin, mint("cmp"), int(time.time()))
        token = services.sealer.seal(sealed, tenant=principal.owner)
        await exchange.answer(
            t.CompactedResponse(
                id=asking.id,
                created_at=int(asking.created_at),
                output=[t.CompactionItem(id=sealed.item_id or "", encrypted_content=token)],
                usage=usage_of(redact_usage(usage, exchange.reader))
                or t.Usage(0, 0, 0, t.InputTokensDetails(0), t.OutputTokensDetails(0)),
            )
        )


async def _written(exchange: Exchange, run: RunSource) -> tuple[str, Usage]:
    """What the model wrote, whole, and what that took. Raises `PellucidError` for less."""
    fold = Fold()

    def receive(batch: Batch) -> None:
        for event in batch.events:
            fold.feed(event)

    end = await read_to_end(exchange, run, lambda: run.deliver(receive))
    if end.error is not None:
        raise PellucidError(end.error)
    if end.status != "completed":
        raise PellucidError(CUT)
    text = "".join(message.text or "" for message in fold.messages if isinstance(message, ModelResponse))
    if not text.strip():
        raise PellucidError(EMPTY)
    return text, end.usage
