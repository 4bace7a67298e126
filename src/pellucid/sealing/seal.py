"""Sealed items, and the sealer.

A `Sealed` is one item as its model made it: raw text, signatures, the provider's ids and details, and the origin. A
token (see `token`) holds it as JSON, and opening the token gives an equal value, including halves of surrogate pairs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from ..parts import ModelResponsePart, Origin, ToolCallPart
from ..unicode import is_nested_deeper
from . import token as tokens
from .keys import Keys
from .token import SealError

MAX_DEPTH = 500
"""Levels of JSON. A value within the limit can also be read, at any depth of the program's stack."""

_PURPOSE = "item"
_CALL_PURPOSE = "call"


class TextDigest(NamedTuple):
    """What a seal has of a text that it does not contain (see `visible_text`)."""

    length: int
    """In bytes of UTF-8, without white space."""
    digest: str


class Sealed(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """One item, or the part of it that a client cannot see."""

    parts: list[ModelResponsePart]
    """The parts, each with its own `origin`."""
    made_for: Origin
    """The item's origin. Its opaque data is sent to no other."""
    item_id: str | None = None
    """The item's public id."""
    sealed_at: int = 0
    """In whole seconds since 1970."""
    digests: list[str | None] = []
    """For each part, the digest of the text that was left out because the client has it; None: the part is whole.
    Empty: all parts are whole."""
    summaries: TextDigest | None = None
    """The gateway's summaries of the item. Readers may have them, but no model needs them back."""


class Sealer:
    """Seals and opens items.

    Args:
        keys: A key set, or a function that returns the current one (see `KeyFile`).
    """

    def __init__(self, keys: Keys | Callable[[], Keys]) -> None:
        self._keys = keys

    def seal(self, sealed: Sealed, *, tenant: str, thread: str | None = None, entity: str | None = None) -> str:
        """Seal an item.

        Args:
            sealed: The item.
            tenant: The tenant to which the token is bound.
            thread: The thread to which the token is bound; None for any.
            entity: The message or call to which the token is bound; None for any.

        Returns:
            The token: ASCII, safe in URLs.

        Raises:
            SealError: The item is too large or too deeply nested (`seal_too_large`).
        """
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
        """Open a token.

        Args:
            token: The token; any string is accepted.
            tenant: The tenant for which it was sealed.
            thread: The thread, if the token is bound to one.
            entity: The message or call, if the token is bound to one.
            now: The time at which retired keys are checked; by default the current time.

        Returns:
            The item.

        Raises:
            SealError: The token cannot be opened. No other exception is raised.
        """
        return _from_json(
            tokens.read(token, self._current_keys(), _PURPOSE, tokens.Binding(tenant, thread, entity), now)
        )

    def seal_call(self, call: ToolCallPart, *, tenant: str, thread: str | None = None) -> str:
        """Return a token that proves that a model made this call, with this function and these arguments.

        Args:
            call: The call.
            tenant: The tenant to which the token is bound.
            thread: The thread to which the token is bound; None for any.
        """
        binding = tokens.Binding(tenant, thread, _call_identity(call))
        return tokens.write(b"", self._current_keys(), _CALL_PURPOSE, binding)

    def check_call(self, token: str, call: ToolCallPart, *, tenant: str, thread: str | None = None) -> None:
        """Check that `seal_call` made the token for this call.

        Args:
            token: The token; any string is accepted.
            call: The call.
            tenant: The tenant for which it was sealed.
            thread: The thread, if the token is bound to one.

        Raises:
            SealError: It did not.
        """
        binding = tokens.Binding(tenant, thread, _call_identity(call))
        tokens.read(token, self._current_keys(), _CALL_PURPOSE, binding)

    def for_tenant(self, tenant: str, thread: str | None = None) -> TenantSealer:
        """Return a sealer for one tenant, and for one of its threads if `thread` is set."""
        return TenantSealer(self, tenant, thread)

    def _current_keys(self) -> Keys:
        return self._keys if isinstance(self._keys, Keys) else self._keys()


class TenantSealer(NamedTuple):
    """A sealer for one tenant, and possibly one thread."""

    sealer: Sealer
    tenant: str
    thread: str | None = None

    def seal(self, sealed: Sealed) -> str:
        """Seal an item; see `Sealer.seal`."""
        return self.sealer.seal(sealed, tenant=self.tenant, thread=self.thread)

    def open(self, token: str) -> Sealed:
        """Open a token; see `Sealer.open`."""
        return self.sealer.open(token, tenant=self.tenant, thread=self.thread)

    def seal_call(self, call: ToolCallPart) -> str:
        """Return a token for a call; see `Sealer.seal_call`."""
        return self.sealer.seal_call(call, tenant=self.tenant, thread=self.thread)

    def check_call(self, token: str, call: ToolCallPart) -> None:
        """Check the token of a call; see `Sealer.check_call`."""
        self.sealer.check_call(token, call, tenant=self.tenant, thread=self.thread)


_decode = msgspec.json.Decoder(Sealed).decode


def _call_identity(call: ToolCallPart) -> str:
    """Return the id, function and arguments of a call as one text.

    Clients may decode and encode the arguments: white space, the order of keys and the form of numbers do not count.
    """
    text = call.args if isinstance(call.args, str) else json.dumps(call.args, default=repr)
    try:
        arguments = json.loads(text or "{}", parse_float=canonical_number)
    except (ValueError, RecursionError):
        arguments = text  # what the model wrote is not JSON
    return json.dumps([call.tool_call_id, call.tool_name, arguments], sort_keys=True)


def canonical_number(text: str) -> int | float:
    """Parse a JSON number. 1.0 and 1 are the same number."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _to_json(sealed: Sealed) -> bytes:
    try:
        try:
            data = msgspec.json.encode(sealed, enc_hook=repr)
        except UnicodeEncodeError:
            # Half of a surrogate pair: JSON can hold it as an escape, but UTF-8 cannot.
            data = json.dumps(_builtins(sealed)).encode()
        # With few brackets the depth is small, and the values need not be examined.
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
