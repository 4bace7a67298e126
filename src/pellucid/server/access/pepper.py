"""The installation's pepper: 32 random bytes under which API keys are hashed.

* It is in the environment (`PELLUCID_KEY_PEPPER`) or else in a file that only its owner can read, made when it is first
  needed. Replicas share one: a key is known only where the pepper is that it was made under.
* It is not one of the seal keys: those are rotated, and a rotation must not lock everybody out. Losing the pepper costs
  new API keys, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from ...errors import ConfigError
from ..places import default_pepper

VARIABLE = "PELLUCID_KEY_PEPPER"
_BYTES = 32
_FORM = re.compile(r"[0-9a-f]{64}")


def find_pepper(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> bytes:
    """The pepper, made if there is none. Raises `ConfigError`."""
    if text := environ.get(VARIABLE, "").strip():
        return _read(text, VARIABLE)
    path = (path or default_pepper(environ)).expanduser()
    try:
        with contextlib.suppress(FileNotFoundError):
            return _from_file(path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(path)
        return _from_file(path)
    except OSError as error:
        raise ConfigError([f"access.pepper_file: {path}: {error.strerror or error}"]) from error


def check_pepper(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> None:
    """Raises `ConfigError` for a pepper that is there and cannot be used. None is made."""
    if environ.get(VARIABLE, "").strip() or (path or default_pepper(environ)).expanduser().exists():
        find_pepper(path, environ)


def _from_file(path: Path) -> bytes:
    with path.open(encoding="latin-1") as file:
        mode = os.fstat(file.fileno()).st_mode
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError([f"access.pepper_file: others may read {path}; make it yours alone: chmod 600 {path}"])
        return _read(file.read(1024).strip(), str(path))


def _read(text: str, where: str) -> bytes:
    if not _FORM.fullmatch(text):
        raise ConfigError([f"{where}: must hold {_BYTES} random bytes as {2 * _BYTES} hexadecimal digits"])
    return bytes.fromhex(text)


def _make(path: Path) -> None:
    """Write the file whole under another name and link it: of two who start at once, both read what the first made."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
