"""Bytes in pieces. A blob may be cut over several deltas, each with base64 of its own.

Base64 cannot be joined where a piece has padding: the bytes are joined, and encoded once. What Bedrock calls
`redactedContent` is, from Claude, the UTF-8 of a text; that text is what is kept as the part's signature, as it would
be from Anthropic itself. From others it may be any bytes, or not even base64: then it is kept as it is on the wire,
and the part's details say so.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from typing import Any

ON_THE_WIRE: dict[str, Any] = {"redacted_content": "base64"}
"""Details of a part whose signature is already what goes onto the wire."""


def joined(pieces: list[str]) -> bytes | None:
    """The bytes of all pieces; None if one is not base64."""
    try:
        return b"".join(b64decode(piece, validate=True) for piece in pieces)
    except (Error, ValueError):
        return None


def signature_of(pieces: list[str]) -> tuple[str, dict[str, Any] | None]:
    """What to keep of a redacted block, as a signature and the part's details."""
    data = joined(pieces)
    if data is None:
        return "".join(pieces), ON_THE_WIRE
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return b64encode(data).decode(), ON_THE_WIRE


def redacted_content(signature: str, details: dict[str, Any] | None) -> str:
    """The same, for the wire."""
    if (details or {}).get("redacted_content") == "base64":
        return signature
    return b64encode(signature.encode()).decode()
