"""Where the key that signs is kept: a file that only its owner can read, or an environment variable.

The file is made on the first start, whole or not at all: of several processes that start at once, one makes it and the
others read what it made. Replicas share one. It is PEM; the first private key in it signs, and by the others, which may
be public ones, what was signed before is still known.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import NamedTuple

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
        with Path(path).open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read()
    except FileNotFoundError:
        raise ConfigError(
            [f"{path}: there is no key to sign the record with; `pellucid serve` makes it once"]
        ) from None
    except OSError as error:
        raise ConfigError([f"{path}: the record's key cannot be read: {error.strerror}"]) from None
    if sys.platform != "win32" and mode & 0o077:
        raise ConfigError([f"{path}: others than its owner may open this file (mode {mode:04o}); chmod 600 it"])
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
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path, Signer.generate().pem())
    except OSError as error:
        raise ConfigError([f"{path}: the record's key cannot be made: {error.strerror}; or set {ENV}"]) from None
    return read_record_keys(path)


def _make(path: Path, data: bytes) -> None:
    fd, beside = mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            # A link, not a rename: whoever comes second must not take the place of the first.
            os.link(beside, path)
    finally:
        os.unlink(beside)


def _keys(data: bytes, where: str, *, private: bool) -> RecordKeys:
    signers, publics = read_signers(data, where)
    if private and not signers:
        raise ConfigError([f"{where}: there is no private key in it to sign the record with"])
    return RecordKeys(tuple(signers), Trusted(publics))
