"""Seal keys: an immutable set, in which one key seals and the others still open what they sealed earlier.

The first key without a time of retirement seals. A key with a time of retirement seals nothing more, and after that
time it opens nothing more.

As JSON (a file, or the value of an environment variable), the keys' bytes in base64:

    {"keys": [{"kid": "seal-5f1c09e2ab", "key": "kX3…=", "created_at": "2026-01-31T12:00:00Z"},
              {"kid": "seal-0b77d2c841", "key": "9aQ…=", "created_at": "2025-11-02T08:30:00Z",
               "retired_at": "2026-03-01T00:00:00Z"}]}
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec.structs import replace

from ..errors import ConfigError, RequestError

KEY_BYTES = 32

_KID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_AwareDatetime = Annotated[datetime, msgspec.Meta(tz=True)]


class Key(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One master key. `kid` is readable in every token. The key's bytes appear in the JSON only, not in `repr`."""

    kid: str
    key: bytes
    created_at: _AwareDatetime
    retired_at: _AwareDatetime | None = None

    def is_retired(self, now: datetime) -> bool:
        """Whether the key no longer opens tokens."""
        return self.retired_at is not None and self.retired_at <= now

    def __repr__(self) -> str:
        return f"Key(kid={self.kid!r}, created_at={self.created_at}, retired_at={self.retired_at})"


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An immutable key set. Every change returns a new set."""

    keys: tuple[Key, ...]

    @classmethod
    def generate(cls, now: datetime | None = None) -> Keys:
        """Generate a set with one new key.

        Args:
            now: The key's creation time; by default the current time.
        """
        return cls((_new_key(now or datetime.now(UTC)),))

    @classmethod
    def from_json(cls, data: bytes | str, where: str = "seal keys") -> Keys:
        """Decode a set that `to_json` encoded.

        Args:
            data: The JSON.
            where: Where the JSON comes from; each line of an error begins with it.

        Raises:
            ConfigError: The JSON is not a valid set; one line for each mistake.
        """
        try:
            keys = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            # msgspec's message names the path and the type, never the value.
            raise ConfigError([f'{where}: {error}; it must be {{"keys": [{{"kid", "key", "created_at"}}]}}']) from None
        if mistakes := list(keys._mistakes(where)):
            raise ConfigError(mistakes)
        return keys

    def to_json(self) -> bytes:
        """Encode the whole set, including the keys' bytes: the result is a secret."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @property
    def active(self) -> Key:
        """The key that seals new tokens."""
        return next(key for key in self.keys if key.retired_at is None)

    def find(self, kid: str) -> Key | None:
        """Return the key with this id, retired or not; None if there is none."""
        return next((key for key in self.keys if key.kid == kid), None)

    def rotate(self, now: datetime) -> Keys:
        """Return a set with a new key, which seals from now on. The other keys still open tokens."""
        return Keys((_new_key(now), *self.keys))

    def retire(self, kid: str, now: datetime) -> Keys:
        """Return a set in which a key is retired: it seals nothing from now on, and opens nothing after `now`.

        Args:
            kid: The key's id.
            now: The time of retirement, which may be in the future.

        Raises:
            RequestError: There is no such key, or no other key that seals.
        """
        if self.find(kid) is None:
            key_names = ", ".join(key.kid for key in self.keys)
            raise RequestError(
                f"there is no seal key {kid!r}; there are: {key_names}", kind="not_found", code="seal_key"
            )
        keys = tuple(replace(key, retired_at=now) if key.kid == kid else key for key in self.keys)
        if all(key.retired_at is not None for key in keys):
            raise RequestError(f"{kid!r} is the only key that seals; rotate first", code="last_seal_key")
        return Keys(keys)

    def _mistakes(self, where: str) -> list[str]:
        mistakes = []
        for index, key in enumerate(self.keys):
            location = f"{where}: keys[{index}]"
            if not _KID.fullmatch(key.kid):
                mistakes.append(f"{location}.kid: it must be 1 to 64 letters, digits, '.', '_' or '-'")
            if len(key.key) != KEY_BYTES:
                mistakes.append(
                    f"{location}.key: it has {len(key.key)} bytes; it must be {KEY_BYTES} random bytes in base64"
                )
            if any(other.kid == key.kid for other in self.keys[:index]):
                mistakes.append(f"{location}.kid: {key.kid!r} is there already; each key needs a name of its own")
        if not any(key.retired_at is None for key in self.keys):
            mistakes.append(f"{where}: there is no key that seals; one must be without retired_at")
        return mistakes


def _new_key(now: datetime) -> Key:
    return Key(f"seal-{os.urandom(5).hex()}", os.urandom(KEY_BYTES), now.astimezone(UTC).replace(microsecond=0))
