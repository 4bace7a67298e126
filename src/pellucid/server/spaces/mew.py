"""The paths of MEW's own gateway: `POST /participants/{id}/messages?space=` and `GET /participants?space=`.

Its clients read errors as `{"error": CODE, "message": …}`.
"""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo
from ...protocols.statuses import STATUSES
from ..access.errors import forbidden
from ..exchange import Exchange
from ..services import Services
from .door import Inside
from .endpoints import Endpoints


class MewForm:
    """How MEW says what was wrong."""

    def error_body(self, error: ErrorInfo) -> dict[str, Any]:
        return {"error": error.code or error.kind, "message": error.message}

    def status_of(self, error: ErrorInfo) -> int:
        return STATUSES[error.kind]


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
        await exchange.answer({"space": inside.space.name, "participants": inside.space.members()})
