"""Where the key that signs is kept: a file that only its owner can read (see `data_directory`), or an environment
variable.

It is made on the first start. Replicas share one. It is PEM; the first private key in it signs, and by the others,
which may be public ones, what was signed before is still known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..data_directory import create_secret, read_secret
from ..errors import ConfigError
from .keys import Signer, Trusted, read_signers

ENV = "PELLUCID_RECORD_KEY"
"""The variable that may hold the key, as PEM."""


class RecordKeys(NamedTuple):
    """What a key file holds."""

    signers: tuple[Signer, ...]
    """The first signs."""
    trusted: Trusted
    """The public keys of all."""


def env_record_keys(environ: Mapping[str, str] | None = None) -> RecordKeys | None:
    """Those that the environment holds, or None. Raises `ConfigError`."""
    value = (os.environ if environ is None else environ).get(ENV, "")
    return _keys(value.encode(), ENV, private=True) if value.strip() else None


def read_record_keys(path: str | Path) -> RecordKeys:
    """Those in the file. Raises `ConfigError` if it is not there, not right, or readable by others."""
    try:
        data, _ = read_secret(Path(path))
    except FileNotFoundError:
        raise ConfigError(
            [f"{path}: there is no key to sign the record with; `pellucid serve` makes it once"]
        ) from None
    except OSError as error:
        raise ConfigError([f"{path}: the record's key cannot be read: {error.strerror}"]) from None
    return _keys(data, str(path), private=True)


def read_public_keys(path: str | Path) -> Trusted:
    """Public keys, from a file that need be no secret. Raises `ConfigError`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError([f"{path}: the public key cannot be read: {error.strerror}"]) from None
    return _keys(data, str(path), private=False).trusted


def ensure_record_keys(path: str | Path) -> RecordKeys:
    """Those in the file, which is made with one new key if it is not there. Raises `ConfigError`."""
    path = Path(path)
    try:
        if not path.exists():
            create_secret(path, Signer.generate().pem())
    except OSError as error:
        raise ConfigError([f"{path}: the record's key cannot be made: {error.strerror}; or set {ENV}"]) from None
    return read_record_keys(path)


def _keys(data: bytes, where: str, *, private: bool) -> RecordKeys:
    signers, publics = read_signers(data, where)
    if private and not signers:
        raise ConfigError([f"{where}: there is no private key in it to sign the record with"])
    return RecordKeys(tuple(signers), Trusted(publics))
