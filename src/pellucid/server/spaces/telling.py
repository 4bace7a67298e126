"""What is answered, as JSON: every field, also those that have their default; envelopes in their reader's dialect."""

from __future__ import annotations

from typing import Any

import msgspec

from ...envelopes import USUAL, DialectName, Envelope, write
from ..exchange import Exchange


def told(value: Any, dialect: DialectName = USUAL) -> Any:
    """A struct and all that is in it."""
    if isinstance(value, Envelope):
        return write(value, dialect)
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {encoded: told(getattr(value, name), dialect) for name, encoded in names}
    if isinstance(value, dict):
        return {name: told(one, dialect) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [told(one, dialect) for one in value]
    return value


async def tell(exchange: Exchange, value: Any) -> None:
    """Who may see what changes from one moment to the next: nobody keeps an answer."""
    exchange.headers.append((b"cache-control", b"no-store"))
    await exchange.answer(value)
