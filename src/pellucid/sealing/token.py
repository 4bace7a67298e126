"""Tokens that only the holder of the keys can open: compact JWE (RFC 7516), `dir` with `A256GCM`.

* Every token has its own content key: HKDF-SHA256 over the master key that `kid` names, salted with 16 random bytes,
  for one purpose and one tenant. (So no key is used twice with the same nonce, however many tokens there are.)
* The protected header holds the binding as keyed digests, under a key that is derived together with the content key.
  Nothing about the tenant can be read from a token, and two tokens of one tenant do not look alike. A value that has a
  digest must be passed to open the token; a value without one is not compared.
* The tenant is compared first. For another tenant's token, nothing else is reported.
* Nothing is compressed. The length of compressed reasoning reveals what it repeats, and the holder of the token chose
  part of the model's input (the CRIME attack). Decompression could also be exploited (a zip bomb). For the same reason
  the length is rounded up (Padmé: by at most 12 %), so that it reveals little about the length of the text.
* Any string is accepted: it is opened, or a `SealError` is raised.

`SealCode` lists what can be wrong with a token that a client sent back. The client can correct each, and the message
explains how.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from joserfc.util import urlsafe_b64decode

from ..errors import RequestError
from .keys import Key, Keys

SealCode: TypeAlias = Literal[
    "seal_broken",  # changed, cut, or not a token of this server
    "seal_foreign",  # sealed for another tenant, thread or entity
    "seal_key_unknown",  # sealed with a key that is not in the key set
    "seal_key_retired",  # sealed with a key that no longer opens tokens
    "seal_too_large",  # over the size limit
]


class SealError(RequestError):
    """A token that cannot be opened, or an item that cannot be sealed. The message never quotes its content."""

    def __init__(self, code: SealCode, message: str, *, param: str | None = None) -> None:
        super().__init__(message, code=code, param=param)
        self.code = code

    def at(self, param: str) -> SealError:
        """Return the error with the path of the request's field that holds the token (`input[2].encrypted_content`)."""
        return SealError(self.code, f"{param}: {self.info.message}", param=param)


MAX_TOKEN = 16 * 1024 * 1024
"""Limit in characters. Longer tokens are neither written nor read."""

VERSION = 1

_SALT_BYTES = 16
_DIGEST_BYTES = 16
_MAX_HEADER = 1024


class Binding(NamedTuple):
    """What a token is bound to: the tenant always, a thread and an entity unless they are None."""

    tenant: str
    thread: str | None = None
    entity: str | None = None


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    alg: Literal["dir"]
    enc: Literal["A256GCM"]
    kid: str
    typ: Literal["pellucid"]
    v: int
    salt: str
    to: tuple[str, str | None, str | None]
    """The digests of tenant, thread and entity."""


_decode_header_json = msgspec.json.Decoder(_Header).decode

_registry = jwe.JWERegistry(algorithms=["dir", "A256GCM"], strict_check_header=False)
_registry.max_ciphertext_length = MAX_TOKEN


def write(plain: bytes, keys: Keys, purpose: str, binding: Binding) -> str:
    """Encrypt bytes as a token.

    Args:
        plain: The bytes.
        keys: The key set; its active key encrypts.
        purpose: The kind of content; tokens of one purpose do not open for another.
        binding: What the token is bound to.

    Raises:
        SealError: The bytes are too many (`seal_too_large`).
    """
    plain += b" " * (_padded_length(len(plain)) - len(plain))
    if len(plain) > MAX_TOKEN // 4 * 3 - _MAX_HEADER:
        raise SealError(
            "seal_too_large", f"cannot be sealed: {len(plain)} bytes do not fit in a token of {MAX_TOKEN} characters"
        )
    key, salt = keys.active, os.urandom(_SALT_BYTES)
    content_key, digest_key = _derive_keys(key, salt, purpose, binding.tenant)
    header = _Header(
        "dir",
        "A256GCM",
        key.kid,
        "pellucid",
        VERSION,
        _base64(salt),
        tuple(_digests(digest_key, binding)),  # type: ignore[arg-type]
    )
    return jwe.encrypt_compact(msgspec.to_builtins(header), plain, OctKey.import_key(content_key), registry=_registry)


def read(token: str, keys: Keys, purpose: str, binding: Binding, now: datetime | None = None) -> bytes:
    """Decrypt a token. The result still has the spaces that round its length up.

    Args:
        token: The token; any string is accepted.
        keys: The key set.
        purpose: The kind of content.
        binding: What the token must be bound to.
        now: The time at which retired keys are checked; by default the current time.

    Raises:
        SealError: The token cannot be opened. No other exception is raised.
    """
    if len(token) > MAX_TOKEN:
        raise SealError(
            "seal_too_large", f"a sealed value has at most {MAX_TOKEN} characters; this one has {len(token)}"
        )
    header, salt = _decode_header(token)
    key = keys.find(header.kid)
    if key is None:
        raise SealError("seal_key_unknown", "it was sealed with a key that is not among this server's seal keys")
    if key.is_retired(now or datetime.now(UTC)):
        raise SealError("seal_key_retired", "it was sealed with a key that has been retired; leave it out")
    content_key, digest_key = _derive_keys(key, salt, purpose, binding.tenant)
    _check_binding(header.to, tuple(_digests(digest_key, binding)))
    try:
        return _plaintext(jwe.decrypt_compact(token, OctKey.import_key(content_key), registry=_registry))
    except (JoseError, ValueError):
        raise _invalid_token() from None


def _decode_header(token: str) -> tuple[_Header, bytes]:
    """Decode the header and the salt. A header with any other field is rejected."""
    text, dot, _ = token.partition(".")
    if not dot or len(text) > _MAX_HEADER or not token.isascii():
        raise _invalid_token()
    try:
        header = _decode_header_json(urlsafe_b64decode(text.encode()))
        salt = urlsafe_b64decode(header.salt.encode())
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise _invalid_token() from None
    if header.v != VERSION:
        raise SealError("seal_broken", f"this sealed value is of version {header.v}; this server knows {VERSION}")
    return header, salt


def _plaintext(opened: jwe.CompactEncryption) -> bytes:
    assert opened.plaintext is not None
    return opened.plaintext


def _invalid_token() -> SealError:
    return SealError("seal_broken", "this is not a sealed value of this server, or it was changed; send it as it came")


# --- keys and digests --------------------------------------------------------------------------------------------


def _derive_keys(key: Key, salt: bytes, purpose: str, tenant: str) -> tuple[bytes, bytes]:
    """Derive the key for one token's content and the key for its digests."""
    info = b"pellucid seal 1\0" + purpose.encode() + b"\0" + _bytes(tenant)
    derived = HKDF(SHA256(), 64, salt, info).derive(key.key)
    return derived[:32], derived[32:]


def _digests(digest_key: bytes, binding: Binding) -> Iterator[str | None]:
    for name, value in zip(binding._fields, binding, strict=True):
        if value is None:
            yield None
        else:
            digest = hmac.digest(digest_key, name.encode() + b"\0" + _bytes(value), hashlib.sha256)
            yield _base64(digest[:_DIGEST_BYTES])


def _check_binding(token_digests: tuple[str | None, ...], expected: tuple[str | None, ...]) -> None:
    """Check that the token is bound to the expected tenant, thread and entity.

    Raises:
        SealError: It is bound to something else.
    """
    mismatched = [
        name
        for name, theirs, ours in zip(Binding._fields, token_digests, expected, strict=True)
        if theirs is not None and (ours is None or not hmac.compare_digest(theirs.encode(), ours.encode()))
    ]
    if "tenant" in mismatched:
        raise SealError("seal_foreign", "this value was not sealed for you")
    if mismatched:
        raise SealError("seal_foreign", f"this value was sealed for another {' and another '.join(mismatched)}")


def _padded_length(length: int) -> int:
    """Round a length up to few significant bits, so that it reveals only an order of size (Padmé, PURBs 2019)."""
    if length < 2:
        return length
    exponent = length.bit_length() - 1
    dropped_bits = exponent - exponent.bit_length()
    return (length + (1 << dropped_bits) - 1) >> dropped_bits << dropped_bits


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
