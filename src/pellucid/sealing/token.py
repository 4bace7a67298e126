"""Bytes to a token that only we can open, and back: a compact JWE (RFC 7516), `dir` with `A256GCM`.

* Every token has a content key of its own: HKDF-SHA256 over the master key that `kid` names, salted with 16 random
  bytes, for one purpose and one tenant. (So no key ever meets the same nonce twice, however many tokens there are.)
* Whom it is for stands in the protected header as keyed digests, under a key derived together with the content key:
  nothing about the tenant can be read from a token, and two tokens of one tenant do not look alike. What the digests
  name must be named when it is opened; what they leave out is free.
* The tenant is compared first, and of another tenant's token nothing more is told.
* Nothing is compressed. The length of a compressed thought tells what it repeats, and whoever holds the token chose
  part of what the model thought about (CRIME is that); a token that is unpacked could also be a bomb. For the same
  reason the length is rounded up (Padmé: by 12 % at most), so that it tells little of the text's.
* Total: any string at all is opened or gives a `SealError`.

What can be wrong with a token that came back. Each is the caller's to mend, and says how.
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
    "seal_broken",  # changed, cut, or never a token of ours
    "seal_foreign",  # sealed for somebody else, or for another thread or entity
    "seal_key_unknown",  # sealed with a key that is not among ours
    "seal_key_retired",  # sealed with a key that opens nothing any more
    "seal_too_large",  # longer than is ever read or written
]


class SealError(RequestError):
    """A token that cannot be opened, or an item that cannot be sealed. Nothing of its content is in the message."""

    def __init__(self, code: SealCode, message: str, *, param: str | None = None) -> None:
        super().__init__(message, code=code, param=param)
        self.code = code

    def at(self, param: str) -> SealError:
        """The same, with the request's field in which the token stood (`input[2].encrypted_content`)."""
        return SealError(self.code, f"{param}: {self.info.message}", param=param)


MAX_TOKEN = 16 * 1024 * 1024
"""Characters. Longer tokens are neither written nor read."""

VERSION = 1

_SALT_BYTES = 16
_DIGEST_BYTES = 16
_MAX_HEADER = 1024


class Bound(NamedTuple):
    """Whom and what a token is for. `tenant` is told apart from every other; None binds to nothing."""

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


_header = msgspec.json.Decoder(_Header).decode

_registry = jwe.JWERegistry(algorithms=["dir", "A256GCM"], strict_check_header=False)
_registry.max_ciphertext_length = MAX_TOKEN


def write(plain: bytes, keys: Keys, purpose: str, bound: Bound) -> str:
    """The token of `plain`. Raises `SealError` (`seal_too_large`)."""
    plain += b" " * (_rounded(len(plain)) - len(plain))
    if len(plain) > MAX_TOKEN // 4 * 3 - _MAX_HEADER:
        raise SealError(
            "seal_too_large", f"{len(plain)} bytes are too many to seal; {MAX_TOKEN} characters hold it not"
        )
    key, salt = keys.active, os.urandom(_SALT_BYTES)
    content, binding = _derived(key, salt, purpose, bound.tenant)
    header = _Header(
        "dir",
        "A256GCM",
        key.kid,
        "pellucid",
        VERSION,
        _base64(salt),
        tuple(_digests(binding, bound)),  # type: ignore[arg-type]
    )
    return jwe.encrypt_compact(msgspec.to_builtins(header), plain, OctKey.import_key(content), registry=_registry)


def read(token: str, keys: Keys, purpose: str, bound: Bound, now: datetime | None = None) -> bytes:
    """What `token` holds, with the spaces that round its length up. Raises `SealError`, and nothing else."""
    if len(token) > MAX_TOKEN:
        raise SealError(
            "seal_too_large", f"a sealed value has at most {MAX_TOKEN} characters; this one has {len(token)}"
        )
    header, salt = _head(token)
    key = keys.find(header.kid)
    if key is None:
        raise SealError("seal_key_unknown", "it was sealed with a key that is not among this server's seal keys")
    if key.retired(now or datetime.now(UTC)):
        raise SealError("seal_key_retired", "it was sealed with a key that has been retired; leave it out")
    content, binding = _derived(key, salt, purpose, bound.tenant)
    _check_binding(header.to, tuple(_digests(binding, bound)))
    try:
        return _plain(jwe.decrypt_compact(token, OctKey.import_key(content), registry=_registry))
    except (JoseError, ValueError):
        raise _broken() from None


def _head(token: str) -> tuple[_Header, bytes]:
    """The header, in which nothing may be but what is written here."""
    text, dot, _ = token.partition(".")
    if not dot or len(text) > _MAX_HEADER or not token.isascii():
        raise _broken()
    try:
        header = _header(urlsafe_b64decode(text.encode()))
        salt = urlsafe_b64decode(header.salt.encode())
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise _broken() from None
    if header.v != VERSION:
        raise SealError("seal_broken", f"this sealed value is of version {header.v}; this server knows {VERSION}")
    return header, salt


def _plain(opened: jwe.CompactEncryption) -> bytes:
    assert opened.plaintext is not None
    return opened.plaintext


def _broken() -> SealError:
    return SealError("seal_broken", "this is not a sealed value of this server, or it was changed; send it as it came")


# --- keys and digests --------------------------------------------------------------------------------------------


def _derived(key: Key, salt: bytes, purpose: str, tenant: str) -> tuple[bytes, bytes]:
    """The key for one token's content, and the key for its digests."""
    info = b"pellucid seal 1\0" + purpose.encode() + b"\0" + _bytes(tenant)
    both = HKDF(SHA256(), 64, salt, info).derive(key.key)
    return both[:32], both[32:]


def _digests(binding: bytes, bound: Bound) -> Iterator[str | None]:
    for name, value in zip(bound._fields, bound, strict=True):
        if value is None:
            yield None
        else:
            digest = hmac.digest(binding, name.encode() + b"\0" + _bytes(value), hashlib.sha256)
            yield _base64(digest[:_DIGEST_BYTES])


def _check_binding(written: tuple[str | None, ...], given: tuple[str | None, ...]) -> None:
    """Raises `SealError` if the token is for somebody or something else than `given`."""
    wrong = [
        name
        for name, theirs, ours in zip(Bound._fields, written, given, strict=True)
        if theirs is not None and (ours is None or not hmac.compare_digest(theirs.encode(), ours.encode()))
    ]
    if "tenant" in wrong:
        raise SealError("seal_foreign", "this value was not sealed for you")
    if wrong:
        raise SealError("seal_foreign", f"this value was sealed for another {' and another '.join(wrong)}")


def _rounded(length: int) -> int:
    """`length` with so few leading digits that it tells only its size (Padmé, PURBs 2019)."""
    if length < 2:
        return length
    exponent = length.bit_length() - 1
    free = exponent - exponent.bit_length()
    return (length + (1 << free) - 1) >> free << free


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
