"""What is sealed, and who seals it.

A `Sealed` is one item as its model made it: raw text, signatures, the provider's ids and details, and whose it is. It
rides as JSON in a token (see `token`), and comes out equal, half surrogate pairs and all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from ..parts import ModelResponsePart, Origin
from ..unicode import is_nested_deeper
from . import token as tokens
from .keys import Keys
from .token import SealError

MAX_DEPTH = 500
"""Levels of JSON. What can be written can then be read, however deep in a program that happens."""

_PURPOSE = "item"


class Sealed(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """One item, or what a reader cannot see of it."""

    parts: list[ModelResponsePart]
    """Each with an `origin` of its own."""
    made_for: Origin
    """Whose it is: to others nothing opaque of it goes."""
    item_id: str | None = None
    """The item's public id."""
    sealed_at: int = 0
    """In whole seconds."""
    digests: list[str | None] = []
    """For each part, the digest of the text that was left out because its reader has it; None: the part is whole.
    Empty: all are whole."""


class Sealer:
    """Seals and opens with a key set, or with whatever `keys()` gives at the time (see `KeyFile`)."""

    def __init__(self, keys: Keys | Callable[[], Keys]) -> None:
        self._keys = keys

    def seal(self, sealed: Sealed, *, tenant: str, thread: str | None = None, entity: str | None = None) -> str:
        """The token: ASCII, safe in URLs. Raises `SealError` (`seal_too_large`) for what is too large or too deep."""
        return tokens.write(_to_json(sealed), self._current_keys(), _PURPOSE, tokens.Binding(tenant, thread, entity))

    def open(
        self,
        token: str,
        *,
        tenant: str,
        thread: str | None = None,
        entity: str | None = None,
        now: datetime | None = None,
    ) -> Sealed:
        """What was sealed. Raises `SealError`, and nothing else, for any other string.

        What the token was bound to must be given and be the same; `now` decides whether its key has been retired.
        """
        return _from_json(
            tokens.read(token, self._current_keys(), _PURPOSE, tokens.Binding(tenant, thread, entity), now)
        )

    def for_tenant(self, tenant: str, thread: str | None = None) -> TenantSealer:
        """Seals and opens for this tenant, and for this thread of theirs alone if one is named."""
        return TenantSealer(self, tenant, thread)

    def _current_keys(self) -> Keys:
        return self._keys if isinstance(self._keys, Keys) else self._keys()


class TenantSealer(NamedTuple):
    """A sealer that knows for whom."""

    sealer: Sealer
    tenant: str
    thread: str | None = None

    def seal(self, sealed: Sealed) -> str:
        """Raises `SealError` (`seal_too_large`)."""
        return self.sealer.seal(sealed, tenant=self.tenant, thread=self.thread)

    def open(self, token: str) -> Sealed:
        """Raises `SealError`."""
        return self.sealer.open(token, tenant=self.tenant, thread=self.thread)


_decode = msgspec.json.Decoder(Sealed).decode


def _to_json(sealed: Sealed) -> bytes:
    try:
        try:
            data = msgspec.json.encode(sealed, enc_hook=repr)
        except UnicodeEncodeError:
            # Half a surrogate pair: JSON can say it, escaped, though UTF-8 cannot hold it.
            data = json.dumps(_builtins(sealed)).encode()
        # Few brackets are no depth; that is told without a look at the values.
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH and is_nested_deeper(_builtins(sealed), MAX_DEPTH):
            raise RecursionError
    except RecursionError:
        raise SealError("seal_too_large", f"the item is nested deeper than {MAX_DEPTH} levels") from None
    return data


def _builtins(sealed: Sealed) -> Any:
    return msgspec.to_builtins(sealed, str_keys=True, enc_hook=repr)


def _from_json(data: bytes) -> Sealed:
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return msgspec.convert(json.loads(data), Sealed)
    except (ValueError, RecursionError):
        raise SealError("seal_broken", "this value was sealed by a version that this server cannot read") from None
