"""API keys: their format, and the hash that is stored.

    pk_ + 10 characters of id + 43 of secret (32 random bytes) + 6 of checksum, all of them [0-9A-Za-z]

* The checksum (CRC-32) finds a mistyped key without a look-up; it is not a secret.
* A keyed hash is stored: HMAC-SHA256 of the whole key with the installation's pepper (`pepper`). The secret is random,
  so a slow hash is not needed. Without the pepper, who has only the database cannot use a hash or forge a row. Four
  bytes that identify the pepper precede the hash, so keys made under another pepper are recognised.
* The key itself is shown once, when it is created.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from .errors import unauthorized

PREFIX = "pk_"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 10, 43, 6
_SECRET_BYTES = 32
_KEY_PATTERN = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{_ID_LENGTH}}})[0-9A-Za-z]{{{_SECRET_LENGTH + _CHECKSUM_LENGTH}}}")


class NewKey(NamedTuple):
    """A new key."""

    id: str
    """Identifies the key; not a secret."""
    text: str
    """The key. It is not stored."""


def new_key(random: Callable[[int], bytes] = secrets.token_bytes) -> NewKey:
    """Create a key. `random` returns this many random bytes."""
    id_ = _base62(int.from_bytes(random(16)), _ID_LENGTH)
    body = PREFIX + id_ + _base62(int.from_bytes(random(_SECRET_BYTES)), _SECRET_LENGTH)
    return NewKey(f"key_{id_}", body + _checksum(body))


def looks_like_key(text: str) -> bool:
    return text.startswith(PREFIX)


def key_id_of(text: str) -> str:
    """Return the id in a key.

    Raises:
        AccessError: unauthorized for a text that cannot be a key.
    """
    match = _KEY_PATTERN.fullmatch(text)
    if match is None or text[-_CHECKSUM_LENGTH:] != _checksum(text[:-_CHECKSUM_LENGTH]):
        raise unauthorized(
            "the API key is mistyped or cut: its checksum does not fit; copy it again", "invalid_api_key"
        )
    return f"key_{match[1]}"


class KeyHasher:
    """Computes keyed hashes with one pepper."""

    def __init__(self, pepper: bytes) -> None:
        self._pepper = pepper
        self.pepper_id = self._hmac(b"pellucid pepper")[:4]

    def digest(self, text: str) -> bytes:
        return self.pepper_id + self._hmac(b"pellucid api key\0" + text.encode())

    def is_own_hash(self, digest: bytes) -> bool:
        """Return whether a hash was made with this pepper."""
        return digest[: len(self.pepper_id)] == self.pepper_id

    def _hmac(self, data: bytes) -> bytes:
        return hmac.digest(self._pepper, data, sha256)


def _checksum(body: str) -> str:
    return _base62(crc32(body.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    """Return the `length` lowest base-62 digits of a number."""
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
