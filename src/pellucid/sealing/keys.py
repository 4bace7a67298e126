"""The keys that seal: an immutable set, of which one seals and the others still open what they sealed once.

The order is the rule: the first key that is not to be retired seals. A key that has a time of retirement seals nothing
more, and from that time on it opens nothing more.

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
    """One master key. `kid` stands readable in every token; the key itself is in no representation but the JSON."""

    kid: str
    key: bytes
    created_at: _AwareDatetime
    retired_at: _AwareDatetime | None = None

    def is_retired(self, now: datetime) -> bool:
        """Whether it opens nothing any more."""
        return self.retired_at is not None and self.retired_at <= now

    def __repr__(self) -> str:
        return f"Key(kid={self.kid!r}, created_at={self.created_at}, retired_at={self.retired_at})"


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key set. Every change gives a new one."""

    keys: tuple[Key, ...]

    @classmethod
    def generate(cls, now: datetime | None = None) -> Keys:
        """One new key."""
        return cls((_new_key(now or datetime.now(UTC)),))

    @classmethod
    def from_json(cls, data: bytes | str, where: str = "seal keys") -> Keys:
        """The set that `to_json` wrote. Raises `ConfigError` with one line a mistake, each beginning with `where`."""
        try:
            keys = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            # What msgspec says names the place and the type, never the value.
            raise ConfigError([f'{where}: {error}; it must be {{"keys": [{{"kid", "key", "created_at"}}]}}']) from None
        if mistakes := list(keys._mistakes(where)):
            raise ConfigError(mistakes)
        return keys

    def to_json(self) -> bytes:
        """The whole set, keys and all: a secret."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @property
    def active(self) -> Key:
        """The key that seals."""
        return next(key for key in self.keys if key.retired_at is None)

    def find(self, kid: str) -> Key | None:
        """The key of that name, retired or not."""
        return next((key for key in self.keys if key.kid == kid), None)

    def rotate(self, now: datetime) -> Keys:
        """With a new key that seals from now on. The others go on opening."""
        return Keys((_new_key(now), *self.keys))

    def retire(self, kid: str, now: datetime) -> Keys:
        """With the key `kid` retired at `now`, which may be to come: it seals nothing from here on, and opens nothing
        after that. Raises `RequestError` if there is no such key, or no other that could seal."""
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
