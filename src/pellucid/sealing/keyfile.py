"""Where the keys are kept: a file that only its owner can read (see `data_directory`), or an environment variable."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..data_directory import SecretFile, replace_secret
from ..errors import ConfigError
from ..telemetry import log
from .keys import Keys

ENV = "PELLUCID_SEAL_KEYS"
"""The variable that may hold the keys, as the JSON of `Keys`."""

_SECRET_FILE = SecretFile("the seal keys", "there are no seal keys; `pellucid serve` makes them once", ENV)

_FileStamp = tuple[int, int, int]


def env_keys(environ: Mapping[str, str] | None = None) -> Keys | None:
    """The keys that the environment holds, or None. Raises `ConfigError`."""
    value = _SECRET_FILE.from_environment(environ)
    return Keys.from_json(value, ENV) if value is not None else None


def read_keys(path: str | Path) -> Keys:
    """The keys in the file. Raises `ConfigError` if it is not there, not right, or readable by others."""
    return _read(Path(path))[0]


def ensure_keys(path: str | Path) -> Keys:
    """The keys in the file, which is made with one new key if it is not there. Raises `ConfigError`."""
    _SECRET_FILE.ensure(Path(path), lambda: Keys.generate().to_json())
    return read_keys(path)


def change_keys(path: str | Path, change: Callable[[Keys], Keys]) -> Keys:
    """Put `change` of the keys in their place, one change at a time. Raises `ConfigError`, and what `change` raises."""
    path = Path(path).resolve()
    with _exclusive_lock(path):
        keys = change(read_keys(path))
        try:
            replace_secret(path, keys.to_json())
        except OSError as error:
            raise ConfigError([f"{path}: the seal keys cannot be written: {error.strerror}"]) from None
    return keys


class KeyFile:
    """The keys in a file as they are now: read again when the file was replaced, so that a rotation needs no restart.

    Call it for the keys. Raises `ConfigError` when it is made, and never afterwards: a file that went missing or wrong
    is told to the operator, and the keys read last hold.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        ensure_keys(path)
        self._keys, self._stamp = _read(self.path)

    def __call__(self) -> Keys:
        try:
            stamp = _file_stamp(os.stat(self.path))
        except OSError:
            stamp = (0, 0, 0)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._keys, self._stamp = _read(self.path)
            except ConfigError as error:
                log.error("The seal keys cannot be read again, those read before hold: %s", error)
        return self._keys


def _read(path: Path) -> tuple[Keys, _FileStamp]:
    data, status = _SECRET_FILE.read(path)
    return Keys.from_json(data, str(path)), _file_stamp(status)


def _file_stamp(status: os.stat_result) -> _FileStamp:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the lock file beside `path`. The system drops the lock when its holder dies."""
    try:
        fd = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError([f"{path}: the seal keys cannot be changed: {error.strerror}"]) from None
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
