"""What was erased goes from SQLite's log of changes too.

A page that was overwritten still stands in the log (`-wal`) as it was, until the log is begun anew. So after something
was erased, the log is carried over into the file and emptied: by the writer, when nobody waits for it, and at most once
a second. A reader who is in the middle of something, of this process or another, may be in the way: then it is tried
again. What an earlier process left in the log may hold what it erased, and is treated so.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from time import monotonic

EVERY = 1.0
"""Seconds between two times."""
OVERDUE = 5.0
"""After so many more it is done although others wait to write."""
PATIENCE_MS = 100
"""So long it waits for readers, and writers wait for it."""


class Forgetting:
    """One writer's. `path` is None for a store in memory, which has no log."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._due: float | None = None
        self._last = -EVERY
        if path is not None:
            with suppress(OSError):
                if os.path.getsize(f"{path}-wal"):
                    self.mark()

    def mark(self) -> None:
        """Something was erased."""
        if self._path is not None and self._due is None:
            self._due = max(monotonic(), self._last + EVERY)

    def rest(self) -> float | None:
        """How many seconds the writer may wait for something to write. None: for ever."""
        return None if self._due is None else max(0.0, self._due - monotonic())

    @property
    def overdue(self) -> bool:
        return self._due is not None and monotonic() > self._due + OVERDUE

    def carry_over(self, connection: sqlite3.Connection, usual_seconds: float) -> None:
        """Empty the log, if there is need. `usual_seconds`: how long the connection waits for others otherwise."""
        if self._due is None:
            return
        done = False
        with suppress(sqlite3.Error):
            connection.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
            try:
                done = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
            finally:
                connection.execute(f"PRAGMA busy_timeout = {round(usual_seconds * 1000)}")
        self._last = monotonic()
        self._due = None if done else self._last + EVERY
