"""What is hashed, and how. Whoever checks the record without us has this to write anew, and `chain`.

* `digest` is SHA-256 over 16 random bytes, the salt, and the content. Without the salt nobody can try out guesses.
* `canonical` is JSON with its keys sorted and no blanks, in UTF-8: RFC 8785, for text, integers, lists and objects.
* `framed` is a content of several pieces: a line of JSON that names them and says how long each is (null: there is
  none), a line break, and the pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

SALT_BYTES = 16

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def canonical(value: Any) -> bytes:
    # Half of a surrogate pair is no text, but what somebody wrote into a record is to be hashed, not fallen over.
    return _encode(value).encode("utf-8", "surrogatepass")


def digest(salt: bytes, content: Iterable[bytes]) -> bytes:
    hashed = sha256(salt)
    for piece in content:
        hashed.update(piece)
    return hashed.digest()


def framed(fields: Mapping[str, Any], pieces: Mapping[str, bytes | None]) -> list[bytes]:
    """One content. A number with a point in `fields` is written as Python does: the shortest that reads back equal."""
    lengths = [[name, None if piece is None else len(piece)] for name, piece in pieces.items()]
    return [canonical({**fields, "pieces": lengths}) + b"\n", *(piece for piece in pieces.values() if piece)]


def unhex(text: str) -> bytes:
    """The bytes that are written so, and in no other way; nothing, which is no hash, if none are."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return b""
    return data if data.hex() == text else b""
