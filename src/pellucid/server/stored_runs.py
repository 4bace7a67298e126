"""The rows of stored runs. One table has the runs of all protocols; each protocol has a header of its own in the row.

A header (`StoredRunHeader`) is what a protocol needs to encode the run again: `protocols.agui.run_header`,
`chat.answers`, `openresponses.run_header`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import RequestError
from ..protocols import StoredRunHeader
from ..storage import StoredResponse
from ..view import View, stricter
from .access.policy import Principal
from .services import Services

_header_decoder = msgspec.json.Decoder(StoredRunHeader)


def protocol_of(row: StoredResponse) -> str:
    """Return the protocol of the request for which a stored run was created."""
    return _header_decoder.decode(row.header).protocol


def max_view_of(services: Services, row: StoredResponse) -> View:
    """Return the fullest view that anyone gets of a run: the lesser of its model's view then and now."""
    return stricter(_header_decoder.decode(row.header).max_view, services.catalog.max_view(row.model))


def make_row(
    services: Services, principal: Principal, header: StoredRunHeader, *, created_at: float, **fields: Any
) -> StoredResponse:
    """Return the row of a run that is about to start.

    Args:
        services: The gateway's services.
        principal: The caller, whose run it is.
        header: The header of the run's protocol.
        created_at: The time of the request, in seconds since 1970.
        fields: The other fields of the row.
    """
    return StoredResponse(
        owner=principal.owner,
        created_at=created_at,
        updated_at=created_at,
        expires_at=services.expires_at(principal),
        status="in_progress",
        header=msgspec.json.encode(header),
        **fields,
    )


async def find_row(
    services: Services, owner: str, id: str, protocol: str, not_found: RequestError, *, log: bool = False
) -> StoredResponse:
    """Return the row of a stored run.

    Args:
        services: The gateway's services.
        owner: The owner of the run. Runs of others are not found.
        id: The id of the row.
        protocol: The protocol of the run. Runs of other protocols are not found.
        not_found: Raised if there is no such run.
        log: Whether the row's log is loaded.
    """
    row = await services.store.responses.get(owner, id, log=log)
    if row is None or protocol_of(row) != protocol:
        raise not_found
    return row
