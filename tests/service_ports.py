"""Ports for servers that are stopped, and started again on the same port."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

_FIRST, _LAST, _TRIES = 15_000, 32_000, 50


def candidate_ports() -> Iterator[int]:
    """Return loopback ports that are free now, in random order.

    They are below the ephemeral ports (Linux: from 32768), so that no outgoing connection takes a port while its server
    is stopped. Another process may still take it: a server that cannot bind tries the next candidate.
    """
    numbers = random.SystemRandom()  # hypothesis seeds the other generators
    for _ in range(_TRIES):
        port = numbers.randrange(_FIRST, _LAST)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                yield port
    raise AssertionError(f"no port between {_FIRST} and {_LAST} could be bound")
