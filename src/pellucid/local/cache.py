"""Where the weights live on this machine, and the lock that keeps two processes from fetching at once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> bool:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def root() -> Path:
    """``PELLUCID_CACHE`` if it is set, else ``pellucid`` in the user's cache directory (XDG)."""
    if own := os.environ.get("PELLUCID_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pellucid"


@asynccontextmanager
async def lock(path: Path, waiting: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Hold the lock file at ``path``; calls ``waiting`` once if another process holds it.

    The system drops the lock when its holder dies, however it dies. The file itself stays: removing it would
    let a third process lock a new file of the same name.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(fd):
            if waiting:
                waiting()
            while not _try_lock(fd):  # noqa: ASYNC110 (another process holds it: there is nothing to wait on)
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(fd)
