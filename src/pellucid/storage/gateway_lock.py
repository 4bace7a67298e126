"""The lock of a gateway on its SQLite file: one gateway at a time serves a file.

Two gateways on one file would share its data, but no limits, live streams or cancellations. So `pellucid serve` holds
this lock while it runs, and a second gateway reports which process has the file. Workers belong to the gateway of their
supervisor, which holds the lock. Commands and `open_store` do not take it, so that they work while a gateway runs.

The lock is advisory (`flock`), on a file in the directory of the database: the kernel releases it when the process
ends, in whatever way. The file stays, and contains the id of the last process that had the lock, and its address.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ConfigError
from .store import sqlite_path

LOCK_SUFFIX = "-lock"


class FileInUse(ConfigError):
    """Another gateway serves the file."""

    heading = "Pellucid already runs:"


@contextmanager
def gateway_lock(url: str, address: str = "") -> Iterator[None]:
    """Hold the lock on the store of a gateway. Stores in PostgreSQL and in memory have none.

    Args:
        url: The URL of the store.
        address: Where the gateway is reached, for the message that another one gets; empty: it is not known.

    Raises:
        FileInUse: Another gateway serves this file.
        ConfigError: `open_store` does not accept the URL.
    """
    path = sqlite_path(url)
    lock = _acquire(Path(os.path.realpath(path)), address) if path is not None else None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _acquire(path: Path, address: str) -> int | None:
    """Return the descriptor that holds the lock; None if there can be no lock file, which `open_store` may report."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{path}{LOCK_SUFFIX}", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid, _, running_at = os.pread(lock, 1000, 0).decode("utf-8", "replace").strip().partition(" ")
        os.close(lock)
        where = f", at {running_at}" if running_at else ""
        process = f" (process {pid})" if pid else ""
        raise FileInUse(
            [
                f"another gateway{where}{process} uses the file {path}: open that one, or end it and start again; "
                "two at the same time need two files (storage.url), or PostgreSQL, which several gateways share"
            ]
        ) from None
    except OSError:  # a file system without locks
        os.close(lock)
        return None
    with suppress(OSError):  # a full disk
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()} {address}\n".encode(), 0)
    return lock
