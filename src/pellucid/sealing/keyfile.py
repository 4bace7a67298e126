"""Storage of the seal keys: a file that only its owner can read (see `data_directory`), or an environment variable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ..data_directory import FileStamp, SecretFile, exclusive_lock, file_stamp, replace_secret, stamp_of
from ..errors import ConfigError
from ..telemetry import log
from .keys import Keys

ENV = "PELLUCID_SEAL_KEYS"
"""The environment variable that may hold the keys, as the JSON of `Keys`."""

_SECRET_FILE = SecretFile("the seal keys", "there are no seal keys; `pellucid serve` creates them when it starts", ENV)


def env_keys() -> Keys | None:
    """Return the keys in the environment; None if there are none.

    Raises:
        ConfigError: The variable's value is invalid.
    """
    value = _SECRET_FILE.from_environment()
    return Keys.from_json(value, ENV) if value is not None else None


def read_keys(path: str | Path) -> Keys:
    """Read the keys from a file.

    Raises:
        ConfigError: The file does not exist, is invalid, or other users can read it.
    """
    return _read(Path(path))[0]


def ensure_keys(path: str | Path) -> Keys:
    """Read the keys from a file. Create the file with one new key if it does not exist.

    Raises:
        ConfigError: The file cannot be created or read, is invalid, or other users can read it.
    """
    _SECRET_FILE.ensure(Path(path), lambda: Keys.generate().to_json())
    return read_keys(path)


def change_keys(path: str | Path, change: Callable[[Keys], Keys]) -> Keys:
    """Change the keys in a file, under a lock.

    Args:
        path: The file.
        change: Returns the new key set. Its exceptions are not caught.

    Returns:
        The new key set.

    Raises:
        ConfigError: The file cannot be read or written.
    """
    path = Path(path).resolve()
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(path))
        except OSError as error:
            raise ConfigError([f"{path}: the seal keys cannot be changed: {error.strerror}"]) from None
        keys = change(read_keys(path))
        try:
            replace_secret(path, keys.to_json())
        except OSError as error:
            raise ConfigError([f"{path}: the seal keys cannot be written: {error.strerror}"]) from None
    return keys


class KeyFile:
    """The current keys of a file. Call it to get the keys.

    The file is read again after it is replaced, so that a rotation needs no restart. If it becomes missing or invalid,
    that is logged, and the keys that were read last stay valid.

    Args:
        path: The file, which is created if it does not exist.

    Raises:
        ConfigError: The file cannot be created or read. Later calls do not raise.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        ensure_keys(path)
        self._keys, self._stamp = _read(self.path)

    def __call__(self) -> Keys:
        """Return the keys of the file, read again if it has changed."""
        stamp = stamp_of(self.path)
        if stamp != self._stamp:
            try:
                self._keys, self._stamp = _read(self.path)
            except ConfigError as error:
                self._stamp = stamp
                log.error("The seal keys cannot be read again; the keys that were read before stay in use: %s", error)
        return self._keys


def _read(path: Path) -> tuple[Keys, FileStamp]:
    data, status = _SECRET_FILE.read(path)
    return Keys.from_json(data, str(path)), file_stamp(status)
