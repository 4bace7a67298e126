"""The number of gateways that a request has passed through connections, so that a loop of gateways ends.

A connection may lead to the gateway itself, under any of its names, or to another one that leads back. So each request
to a connection carries a number, which the gateway that receives it refuses above `MAX_HOPS`.
"""

from __future__ import annotations

from contextvars import ContextVar

from ..errors import RequestError

HOPS_HEADER = "Pellucid-Hops"

MAX_HOPS = 4

LOOP_CODE = "connection_loop"

_hops: ContextVar[int] = ContextVar("pellucid_hops", default=0)
"""The number of the request that is being served; 0 for one that did not come through a connection."""


def receive_hops(header: str | None) -> None:
    """Take over the number of a request that begins, for all that is done for it.

    Args:
        header: The value of its `Pellucid-Hops`.

    Raises:
        RequestError: It has passed too many gateways.
    """
    hops = int(header) if header is not None and len(header) <= 4 and header.isascii() and header.isdecimal() else 0
    _hops.set(hops)
    if hops > MAX_HOPS:
        raise RequestError(
            f"this request has passed {hops} gateways, and {MAX_HOPS} is the most: a connection leads to the gateway "
            "itself; give it the address of a model server",
            code=LOOP_CODE,
        )


def hops_headers(is_connection: bool) -> dict[str, str]:
    """Return the header of a request to a model.

    Args:
        is_connection: Whether it goes through a connection, which counts. Another one only carries the number on.
    """
    hops = _hops.get() + is_connection
    return {HOPS_HEADER: str(hops)} if hops else {}
