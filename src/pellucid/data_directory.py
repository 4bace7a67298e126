"""The user's data directory: paths of the files that Pellucid creates, and storage of secrets in files.

Only the owner of a secret's file can read it. The file appears complete or not at all: of several processes that start
at the same time, one creates it and the others read it. It is replaced, never written in place, so that a reader always
reads one whole version.
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
from typing import NamedTuple, TypeAlias

from .errors import ConfigError


def data_directory(environ: Mapping[str, str]) -> Path:
    """Return `pellucid` under `XDG_DATA_HOME` (XDG Base Directory Specification), or under `~/.local/share`."""
    base = environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "pellucid"


def default_store_url() -> str:
    """Return the URL of a SQLite file in the data directory. Create the directory."""
    directory = data_directory(os.environ)
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700, parents=True)
    return f"sqlite:///{directory / 'pellucid.sqlite'}"


def default_seal_keys() -> Path:
    """Return the path of the seal keys."""
    return data_directory(os.environ) / "seal-keys.json"


def default_record_key() -> Path:
    """Return the path of the key that signs the record's checkpoints."""
    return data_directory(os.environ) / "record-key.pem"


def default_connections() -> Path:
    """Return the path of the connections that were made in the page."""
    return data_directory(os.environ) / "connections.toml"


def default_pepper(environ: Mapping[str, str]) -> Path:
    """Return the path of the pepper of API keys."""
    return data_directory(environ) / "key-pepper"


def read_secret(path: Path) -> tuple[bytes, os.stat_result]:
    """Read a secret file.

    Returns:
        The file's content and status.

    Raises:
        OSError: It cannot be read, or users other than its owner may read it; `strerror` has the reason.
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
    """Create a file with `data`, and its directory. An existing file stays as it is.

    Raises:
        OSError: The file cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _temporary_file(path, data) as temporary, suppress(FileExistsError):
        # A link, not a rename: the second of two processes must not replace the file of the first.
        os.link(temporary, path)


def replace_secret(path: Path, data: bytes) -> None:
    """Replace a file by one with `data`.

    Raises:
        OSError: The file cannot be written.
    """
    with _temporary_file(path, data) as temporary:
        os.replace(temporary, path)


class SecretFile(NamedTuple):
    """A kind of secret file. Each method raises `ConfigError`, which names the file."""

    name: str
    missing_message: str
    """The error message if there is no file."""
    env_variable: str
    """The environment variable that may hold the secret instead."""

    def from_environment(self) -> str | None:
        """Return the secret in the environment; None if there is none."""
        value = os.environ.get(self.env_variable, "")
        return value if value.strip() else None

    def read(self, path: Path) -> tuple[bytes, os.stat_result]:
        """Read the file. Return its content and status."""
        try:
            return read_secret(path)
        except FileNotFoundError:
            raise ConfigError([f"{path}: {self.missing_message}"]) from None
        except OSError as error:
            raise ConfigError([f"{path}: {self.name} cannot be read: {error.strerror}"]) from None

    def ensure(self, path: Path, create: Callable[[], bytes]) -> None:
        """Create the file with the result of `create` if it does not exist."""
        try:
            if not path.exists():
                create_secret(path, create())
        except OSError as error:
            message = f"{path}: {self.name} cannot be made: {error.strerror}; or set {self.env_variable}"
            raise ConfigError([message]) from None


FileStamp: TypeAlias = tuple[int, int, int]


def file_stamp(status: os.stat_result) -> FileStamp:
    """Return what differs between two versions of a file that is replaced."""
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def stamp_of(path: Path) -> FileStamp:
    """Return the stamp of the file that is at `path` now; a missing one has a stamp of its own."""
    try:
        return file_stamp(os.stat(path))
    except OSError:
        return (0, 0, 0)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock file next to `path`. The system releases the lock when the process dies.

    Raises:
        OSError: The lock file cannot be opened.
    """
    fd = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(fd, msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def _temporary_file(path: Path, data: bytes) -> Iterator[str]:
    """Write `data` to a file next to `path`, synced to the disk. It is removed at the end unless it was renamed."""
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
