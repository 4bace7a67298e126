"""The user's data directory: where the files stand that Pellucid makes for itself, and how secrets are kept in them.

A secret stands in a file that only its owner can read. It is there whole or not at all: of several processes that start
at once, one makes it and the others read what it made. It is replaced, never written into, so that a reader reads all
of one version.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import NamedTuple

from .errors import ConfigError


def data_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """`pellucid` under `XDG_DATA_HOME` (XDG Base Directory Specification), or under `~/.local/share`."""
    base = environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "pellucid"


def default_store_url(environ: Mapping[str, str] = os.environ) -> str:
    """The URL of a SQLite file in the data directory. Makes the directory."""
    directory = data_directory(environ)
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700, parents=True)
    return f"sqlite:///{directory / 'pellucid.sqlite'}"


def default_seal_keys(environ: Mapping[str, str] = os.environ) -> Path:
    return data_directory(environ) / "seal-keys.json"


def default_record_key(environ: Mapping[str, str] = os.environ) -> Path:
    return data_directory(environ) / "record-key.pem"


def default_pepper(environ: Mapping[str, str] = os.environ) -> Path:
    return data_directory(environ) / "key-pepper"


def read_secret(path: Path) -> tuple[bytes, os.stat_result]:
    """What a file holds, and its status.

    Raises:
        OSError: It cannot be read, or others than its owner may read it; `strerror` says what is wrong.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        mode = stat.S_IMODE(status.st_mode)
        if sys.platform != "win32" and mode & 0o077:
            raise PermissionError(
                errno.EACCES, f"others than its owner may open this file (mode {mode:04o}); chmod 600 it", str(path)
            )
        return file.read(), status


def create_secret(path: Path, data: bytes) -> None:
    """Make a file that holds `data`, and its directory; a file that is there stays as it is. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _temporary_file(path, data) as temporary, suppress(FileExistsError):
        # A link, not a rename: the second of two processes must not replace what the first made.
        os.link(temporary, path)


def replace_secret(path: Path, data: bytes) -> None:
    """Put a file that holds `data` in the place of the one that is there. Raises `OSError`."""
    with _temporary_file(path, data) as temporary:
        os.replace(temporary, path)


class SecretFile(NamedTuple):
    """Keys in a file, by what messages call them. Each method raises `ConfigError`, which names the file."""

    name: str
    missing_message: str
    """What is said where there is no file."""
    env_variable: str
    """The environment variable that may hold them instead."""

    def from_environment(self, environ: Mapping[str, str] | None = None) -> str | None:
        value = (os.environ if environ is None else environ).get(self.env_variable, "")
        return value if value.strip() else None

    def read(self, path: Path) -> tuple[bytes, os.stat_result]:
        try:
            return read_secret(path)
        except FileNotFoundError:
            raise ConfigError([f"{path}: {self.missing_message}"]) from None
        except OSError as error:
            raise ConfigError([f"{path}: {self.name} cannot be read: {error.strerror}"]) from None

    def ensure(self, path: Path, create: Callable[[], bytes]) -> None:
        """The file, with what `make` gives if it is not there."""
        try:
            if not path.exists():
                create_secret(path, create())
        except OSError as error:
            message = f"{path}: {self.name} cannot be made: {error.strerror}; or set {self.env_variable}"
            raise ConfigError([message]) from None


@contextmanager
def _temporary_file(path: Path, data: bytes) -> Iterator[str]:
    """A file next to `path` that holds `data`, synced to the disk; removed afterwards unless it was renamed."""
    fd, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
