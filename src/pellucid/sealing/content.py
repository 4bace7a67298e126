"""Text and bytes of an application's own, under the same keys and in the same kind of token.

What is encrypted here opens only here: it is no sealed item, and a sealed item is none of it.
"""

from __future__ import annotations

import struct
from datetime import datetime

from . import token as tokens
from .keys import Keys
from .token import SealError

_PURPOSE = "content"
_LENGTH = struct.Struct(">I")


def encrypt(content: str | bytes, keys: Keys, *, tenant: str = "", context: str | None = None) -> str:
    """A token that `decrypt` opens with the same keys, tenant and context. Raises `SealError` if it is too large.

    `context` is whatever else must be the same (a conversation's id, say). Neither can be read from the token.
    """
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return tokens.write(_LENGTH.pack(len(data)) + data, keys, _PURPOSE, tokens.Binding(tenant, context))


def decrypt(
    token: str, keys: Keys, *, tenant: str = "", context: str | None = None, now: datetime | None = None
) -> bytes:
    """What was encrypted, as bytes. Raises `SealError`, and nothing else, for any other string."""
    data = tokens.read(token, keys, _PURPOSE, tokens.Binding(tenant, context), now)
    [length] = _LENGTH.unpack_from(data)
    return data[_LENGTH.size : _LENGTH.size + length]


def decrypt_text(
    token: str, keys: Keys, *, tenant: str = "", context: str | None = None, now: datetime | None = None
) -> str:
    """The same, as text. Raises `SealError` also if bytes were encrypted that are no text."""
    data = decrypt(token, keys, tenant=tenant, context=context, now=now)
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise SealError("seal_broken", "what was encrypted is bytes, not text; decrypt gives them") from None
