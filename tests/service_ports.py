"""Ports for servers that are stopped and started again on the same one."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

_FIRST, _LAST, _TRIES = 15_000, 32_000, 50


def candidate_ports() -> Iterator[int]:
    """Ports of loopback that are free now, in random order.

    They lie below those that kernels give to outgoing connections (Linux: from 32768), so that none is taken while its
    server is stopped. Another process may still be faster: a server that cannot bind takes the next candidate.
    """
    numbers = random.SystemRandom()  # hypothesis seeds the others
    for _ in range(_TRIES):
        port = numbers.randrange(_FIRST, _LAST)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                yield port
    raise AssertionError(f"no port between {_FIRST} and {_LAST} could be bound")
