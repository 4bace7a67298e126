"""API keys: their format, the hash that is stored, and the pepper with which it is made.

    pk_ + 10 characters of id + 43 of secret (32 random bytes) + 6 of checksum, all of them [0-9A-Za-z]

* The checksum (CRC-32) finds a mistyped key without a look-up; it is not a secret.
* A keyed hash is stored: HMAC-SHA256 of the whole key with the installation's pepper. The secret is random,
  so a slow hash is not needed. Without the pepper, who has only the database cannot use a hash or forge a row. Four
  bytes that identify the pepper precede the hash, so keys made under another pepper are recognised.
* The key itself is shown once, when it is created.

The pepper is 32 random bytes.

* It is in the environment (`PELLUCID_KEY_PEPPER`), or in a file that only its owner can read and that is created at the
  first use. Replicas share one: a key is known only under the pepper with which it was created.
* It is separate from the seal keys, which are rotated: a rotation must not invalidate all API keys. If the pepper is
  lost, new API keys must be created; nothing else is lost.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ...data_directory import create_secret, default_pepper, read_secret
from ...errors import ConfigError
from .errors import unauthorized

PREFIX = "pk_"
PEPPER_VARIABLE = "PELLUCID_KEY_PEPPER"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 10, 43, 6
_SECRET_BYTES = _PEPPER_BYTES = 32
_KEY_PATTERN = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{_ID_LENGTH}}})[0-9A-Za-z]{{{_SECRET_LENGTH + _CHECKSUM_LENGTH}}}")
_PEPPER_PATTERN = re.compile(rf"[0-9a-f]{{{2 * _PEPPER_BYTES}}}")


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
        AccessError: Unauthorized for a text that cannot be a key.
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


def ensure_pepper(path: Path | None, environ: Mapping[str, str]) -> bytes:
    """Return the pepper; create it if there is none. Raises `ConfigError`."""
    if text := environ.get(PEPPER_VARIABLE, "").strip():
        return _parse_pepper(text, PEPPER_VARIABLE)
    path = (path or default_pepper(environ)).expanduser()
    try:
        if not path.exists():
            create_secret(path, f"{secrets.token_hex(_PEPPER_BYTES)}\n".encode())
        return _parse_pepper(read_secret(path)[0].decode("latin-1").strip(), str(path))
    except OSError as error:
        raise ConfigError([f"access.pepper_file: {path}: {error.strerror or error}"]) from error


def check_pepper(path: Path | None, environ: Mapping[str, str]) -> None:
    """Check a pepper that exists, and create none. Raises `ConfigError` if it cannot be used."""
    if environ.get(PEPPER_VARIABLE, "").strip() or (path or default_pepper(environ)).expanduser().exists():
        ensure_pepper(path, environ)


def _parse_pepper(text: str, where: str) -> bytes:
    if not _PEPPER_PATTERN.fullmatch(text):
        raise ConfigError(
            [f"{where}: must hold {_PEPPER_BYTES} random bytes as {2 * _PEPPER_BYTES} hexadecimal digits"]
        )
    return bytes.fromhex(text)
