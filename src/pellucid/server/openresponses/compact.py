"""`POST /v1/responses/compact`: a conversation, told again in less, in an item that only this gateway can read.

The model itself writes what must not be lost. What it wrote is sealed: a client gives the item back instead of what it
stands for, to any replica, and any model goes on from it. Nothing is kept here.
"""

from __future__ import annotations

import secrets
import time

import msgspec
from msgspec.structs import replace

from ...errors import PellucidError, RequestError
from ...parts import CompactionPart, ModelRequest, ModelResponse, UserPromptPart
from ...protocols.openresponses import read_json, request_of
from ...protocols.openresponses import types as t
from ...protocols.openresponses.encode import usage_of
from ...run import Minter
from ...runs import AttachedRun
from ...sealing import Sealed
from ...settings import ToolChoice
from .. import http
from ..exchange import FAULT, Exchange
from ..metered import MeteredRun
from ..services import Services
from ..serving import let_go
from .asking import asking_for

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
        mint = Minter(secrets.token_bytes(16))
        asking = await asking_for(services, exchange, request, mint)
        exchange.headers += await services.guard.spend(principal)
        asking.tools = []
        call = asking.call
        messages = [*call.messages, ModelRequest([UserPromptPart(INSTRUCTIONS)])]
        call = replace(call, messages=messages, tools=(), tool_choice=ToolChoice())
        run = AttachedRun(asking.model, call, mint, log_faults=True)
        metered = MeteredRun(run, services.guard, principal, lambda measured: None)
        async with http.Client(exchange.receive) as client:
            try:
                await metered.open()
                while metered.ended is None:
                    await metered.wait()
                    metered.take()
            finally:
                await let_go(metered)
        if client.gone:
            raise http.ClientGone
        ended = run.ended
        said = [message for message in run.run.messages if isinstance(message, ModelResponse)]
        text = said[-1].text if said else None
        if ended is None or ended.error is not None or not text:
            raise PellucidError(ended.error if ended is not None and ended.error is not None else FAULT)
        part = CompactionPart(text)  # of no provider: it is ours, and goes to any model as text
        sealed = Sealed([part], asking.model.origin, mint("cmp"), int(time.time()))
        item = t.CompactionItem(
            id=sealed.item_id or "", encrypted_content=services.sealer.seal(sealed, tenant=principal.owner)
        )
        usage = usage_of(ended.usage) or t.Usage(0, 0, 0, t.InputTokensDetails(0), t.OutputTokensDetails(0))
        await exchange.answer(
            msgspec.json.encode(
                t.CompactedResponse(id=asking.id, created_at=int(asking.created_at), output=[item], usage=usage)
            )
        )


__all__ = ["Compact"]
