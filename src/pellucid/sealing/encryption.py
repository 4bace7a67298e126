"""Encryption of an application's own text and bytes, with the same keys and the same kind of token.

A token from here opens only here: it is not a sealed item, and a sealed item does not open here.
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
    """Encrypt text or bytes. `decrypt` opens the token with the same keys, tenant and context.

    Args:
        content: Text or bytes.
        keys: The key set; its active key encrypts.
        tenant: The tenant to which the token is bound. It cannot be read from the token.
        context: Another value to which the token is bound (for example a conversation's id). It cannot be read from the
            token.

    Returns:
        The token: ASCII, safe in URLs.

    Raises:
        SealError: The content is too large (`seal_too_large`).
    """
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return tokens.write(_LENGTH.pack(len(data)) + data, keys, _PURPOSE, tokens.Binding(tenant, context))


def decrypt(
    token: str, keys: Keys, *, tenant: str = "", context: str | None = None, now: datetime | None = None
) -> bytes:
    """Decrypt a token as bytes.

    Args:
        token: The token; any string is accepted.
        keys: The key set.
        tenant: The tenant for which it was encrypted.
        context: The context for which it was encrypted.
        now: The time at which retired keys are checked; by default the current time.

    Returns:
        The content.

    Raises:
        SealError: The token cannot be opened. No other exception is raised.
    """
    data = tokens.read(token, keys, _PURPOSE, tokens.Binding(tenant, context), now)
    [length] = _LENGTH.unpack_from(data)
    return data[_LENGTH.size : _LENGTH.size + length]


def decrypt_text(
    token: str, keys: Keys, *, tenant: str = "", context: str | None = None, now: datetime | None = None
) -> str:
    """Decrypt a token as text; see `decrypt`.

    Raises:
        SealError: The token cannot be opened, or its content is not text.
    """
    data = decrypt(token, keys, tenant=tenant, context=context, now=now)
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise SealError("seal_broken", "what was encrypted is bytes, not text; decrypt gives them") from None
