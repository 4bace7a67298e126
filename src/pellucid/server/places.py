"""Where what a gateway keeps is, unless its configuration says otherwise: one folder of the user's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    base = environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "pellucid"


def default_store(environ: Mapping[str, str] = os.environ) -> str:
    """The URL of a SQLite file there. Makes the folder."""
    folder = data_dir(environ)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    return f"sqlite:///{folder / 'pellucid.sqlite'}"


def default_seal_keys(environ: Mapping[str, str] = os.environ) -> Path:
    return data_dir(environ) / "seal-keys.json"


def default_record_key(environ: Mapping[str, str] = os.environ) -> Path:
    return data_dir(environ) / "record-key.pem"


def default_pepper(environ: Mapping[str, str] = os.environ) -> Path:
    return data_dir(environ) / "key-pepper"
