"""The credential of a request, from the headers where clients send it.

These are `Authorization: Bearer …` (OpenAI's SDKs and most others), `x-api-key` (Anthropic's) and `api-key` (Azure's).
The URL is not read: URLs end up in logs and histories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import unauthorized

MAX_CREDENTIAL_CHARACTERS = 16 * 1024
_KEY_HEADERS = (b"x-api-key", b"api-key")


def credential(scope: Mapping[str, Any]) -> str | None:
    """Return the credential of a request, or None.

    Raises:
        AccessError: Unauthorized for two different credentials, or for a text that cannot be one.
    """
    values: set[bytes] = set()
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, rest = value.strip().partition(b" ")
            # Another scheme is for a proxy in front of the gateway.
            if scheme.lower() == b"bearer":
                values.add(rest.strip())
        elif name in _KEY_HEADERS:
            values.add(value.strip())
    values.discard(b"")
    if not values:
        return None
    if len(values) > 1:
        raise unauthorized("the request brings two different credentials; send one", "invalid_credentials")
    text = values.pop()
    if len(text) > MAX_CREDENTIAL_CHARACTERS or not text.isascii() or b" " in text:
        raise unauthorized("the credential is neither an API key nor a token", "invalid_credentials")
    return text.decode()
