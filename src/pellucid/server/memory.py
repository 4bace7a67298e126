"""The memory mark: while the process uses more memory than it may, it accepts no new work.

Running requests go on, and `/health` answers. New runs, and requests with a body, are refused with 503 and
`Retry-After`, until the memory is below the mark again by `RELEASE_SHARE`. By default, the mark is a share of what the
machine, or the container (cgroup), has. The resident memory is read from `/proc`; systems without it have no mark.

Memory that was freed after a peak is returned to the system: the allocator keeps it otherwise (`TRIM_GROWTH_BYTES`).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import ErrorInfo, PellucidError
from ..telemetry import log

DEFAULT_SHARE = 0.8
"""Share of the memory of the machine or container that all workers together may use. Running requests still grow."""

RELEASE_SHARE = 0.95
"""Share of the mark below which new work is accepted again."""

CHECK_SECONDS = 1.0

TRIM_GROWTH_BYTES, TRIM_SECONDS = 16 * 1024 * 1024, 30.0
"""Freed memory is returned when the process has grown by so much since that was done last, and so long ago at least."""

OVERLOADED = ErrorInfo(
    "unavailable",
    "the gateway has not enough memory for new requests; ask again in a moment",
    code="overloaded",
    retry_after=5.0,
)


def resident_bytes() -> int | None:
    """Return the resident memory of this process; None on systems without `/proc`."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that this process and others may use together; None if it is unknown.

    This is the memory of the machine, or the lowest limit of the cgroups that contain the process: a container, a
    service of systemd.

    Args:
        root: The root of the file system.
    """
    sizes: list[int] = []
    with suppress(OSError):
        lines = (root / "proc/meminfo").read_text().splitlines()
        sizes += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    directories = [root / "sys/fs/cgroup"]
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, _, name = line.partition("::")
            if number == "0":  # cgroup v2
                own = directories[0] / name.strip("/")
                directories += [own, *(parent for parent in own.parents if parent.is_relative_to(directories[0]))]
    files = [directory / "memory.max" for directory in directories]
    for file in [*files, directories[0] / "memory/memory.limit_in_bytes"]:  # the last one is that of cgroup v1
        with suppress(OSError, ValueError):  # ValueError: "max"
            sizes.append(int(file.read_text()))
    return min(sizes, default=None)


def default_mark_bytes(workers: int) -> int | None:
    """Return the mark of one of several workers; None if the memory is unknown."""
    available = available_bytes()
    return None if available is None else int(available * DEFAULT_SHARE / workers)


class MemoryMark:
    """Whether the process uses more memory than it may.

    Args:
        mark_bytes: The most that new work may find in use; None or 0: there is no mark.
        resident: Returns the resident memory; None if it is unknown.
        trim: Returns freed memory to the system.
    """

    def __init__(
        self,
        mark_bytes: int | None,
        resident: Callable[[], int | None] = resident_bytes,
        trim: Callable[[], None] | None = None,
    ) -> None:
        self._mark_bytes = mark_bytes
        self._resident = resident
        self._trim = trim or _trim
        self._trimmed_bytes = resident() or 0
        """The memory in use when freed memory was returned last."""
        self.is_exceeded = False

    def check(self) -> None:
        """Raise `PellucidError` if no new work may begin."""
        if self.is_exceeded:
            raise PellucidError(OVERLOADED)

    def update(self) -> None:
        """Compare the memory in use with the mark."""
        used = self._resident()
        if not self._mark_bytes or used is None:
            return
        if not self.is_exceeded and used > self._mark_bytes:
            self.is_exceeded = True
            log.warning("memory: %d MB are in use: new requests are refused", used >> 20)
        elif self.is_exceeded and used < self._mark_bytes * RELEASE_SHARE:
            self.is_exceeded = False
            log.warning("memory: %d MB are in use: new requests are accepted again", used >> 20)

    async def watch(self) -> None:
        """Compare them periodically, and return freed memory to the system, until cancelled."""
        if self._resident() is None:
            return
        checks = 0
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.update()
            checks += 1
            if self.is_exceeded or (checks >= TRIM_SECONDS / CHECK_SECONDS and self._has_grown()):
                checks = 0
                await asyncio.to_thread(self._trim)
                self._trimmed_bytes = self._resident() or 0

    def _has_grown(self) -> bool:
        return (self._resident() or 0) > self._trimmed_bytes + TRIM_GROWTH_BYTES


def _trim() -> None:
    """Return freed memory to the system (glibc). Otherwise it may stay resident after a peak, and so above the mark."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
