"""The installation's pepper: 32 random bytes with which API keys are hashed.

* It is in the environment (`PELLUCID_KEY_PEPPER`), or in a file that only its owner can read and that is created at the
  first use. Replicas share one: a key is known only under the pepper with which it was created.
* It is separate from the seal keys, which are rotated: a rotation must not invalidate all API keys. If the pepper is
  lost, new API keys must be created; nothing else is lost.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from ...data_directory import create_secret, default_pepper, read_secret
from ...errors import ConfigError

ENV_VARIABLE = "PELLUCID_KEY_PEPPER"
_BYTES = 32
_HEX_PATTERN = re.compile(r"[0-9a-f]{64}")


def ensure_pepper(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the pepper; create it if there is none. Raises `ConfigError`."""
    if text := environ.get(ENV_VARIABLE, "").strip():
        return _parse_pepper(text, ENV_VARIABLE)
    path = (path or default_pepper(environ)).expanduser()
    try:
        if not path.exists():
            create_secret(path, f"{secrets.token_hex(_BYTES)}\n".encode())
        return _parse_pepper(read_secret(path)[0].decode("latin-1").strip(), str(path))
    except OSError as error:
        raise ConfigError([f"access.pepper_file: {path}: {error.strerror or error}"]) from error


def check_pepper(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> None:
    """Check a pepper that exists, and create none. Raises `ConfigError` if it cannot be used."""
    if environ.get(ENV_VARIABLE, "").strip() or (path or default_pepper(environ)).expanduser().exists():
        ensure_pepper(path, environ)


def _parse_pepper(text: str, where: str) -> bytes:
    if not _HEX_PATTERN.fullmatch(text):
        raise ConfigError([f"{where}: must hold {_BYTES} random bytes as {2 * _BYTES} hexadecimal digits"])
    return bytes.fromhex(text)
