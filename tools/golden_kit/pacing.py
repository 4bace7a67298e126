"""A streamed reply, and how much of it the client has whenever the upstream is about to send its next piece.

Before each piece the gateway is at rest: it has read all that was sent to it, everything that it wrote has arrived, and
each of its threads sleeps. Then it will do nothing more until it hears something or a timer of its own runs out, so
that what the client has does not depend on the machine's speed. A gateway that holds events back, or gives out several
at once, has its marks in other places.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from .gateway import Gateway
from .surface import SURFACE
from .upstream import Peers, own_counts

REST_SECONDS = 30.0
"""A gateway that is not at rest after so long is at fault."""


def threads(pid: int) -> list[tuple[bytes, ...]]:
    """The threads of a process: state, number, and how often each stopped to run. Those that end are left out."""
    orders: list[tuple[bytes, ...]] = []
    for number in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            file = os.open(f"/proc/{pid}/task/{number}/status", os.O_RDONLY)
            try:
                orders.append(tuple(_STATUS.findall(os.read(file, 8192))))
            finally:
                os.close(file)
    return orders


_STATUS = re.compile(rb"^(?:State|Pid|(?:non)?voluntary_ctxt_switches):\t(\w+)", re.MULTILINE)


class PacedReply:
    """One request and its reply, over a connection of its own; `watch` belongs into the upstream's `Play`."""

    def __init__(self, gateway: Gateway) -> None:
        self._pid = gateway.pid
        self._connection = socket.create_connection(("127.0.0.1", gateway.port), 30)
        self._connection.settimeout(None)  # with a timeout, Python waits also where the call does not
        self._peers = Peers()
        self._seen = b""
        self._ended = False
        self._marks: list[tuple[int, str]] = []
        self._fault = ""
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()

    def watch(self, upstream: socket.socket, what: str | None) -> None:
        """Mark how far the reply is, when the gateway is at rest before something is sent to it."""
        self._idle.clear()
        try:
            with self._lock:
                self._wait_until_rest(upstream, what)
                self._marks.append((len(self._seen), "nothing more" if what is None else what))
        except (OSError, TimeoutError) as error:
            self._fault = f"{type(error).__name__}: {error}"
        finally:
            if what is None:
                self._idle.set()

    def ask(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> None:
        """Send the request and wait for the end of the reply, and of the upstream's."""
        data = json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
        lines += [f"Content-Length: {len(data)}", *(f"{name}: {value}" for name, value in headers.items())]
        self._connection.sendall("\r\n".join([*lines, "", ""]).encode() + data)
        deadline = time.monotonic() + 2 * REST_SECONDS
        while not self._fault:
            with self._lock:
                self._drain()
                if self._ended or body_of(self._seen)[1]:
                    break
            if time.monotonic() > deadline:
                self._fault = f"the reply has no end: {self._seen[-300:]!r}"
            select.select([self._connection], [], [], 0.01)
        if not self._idle.wait(REST_SECONDS) or self._fault:
            raise RuntimeError(self._fault or "the upstream's response has no end")
        SURFACE.add_request(method, path, self.status)

    @property
    def status(self) -> int:
        return int(self._seen.split(b" ", 2)[1])

    def text(self) -> str:
        """The reply's body, with a line wherever the upstream went on."""
        out, at = [], 0
        for seen, what in self._marks:
            end = len(body_of(self._seen[:seen])[0])
            out += [body_of(self._seen)[0][at:end], f"--- {what}\n".encode()]
            at = end
        return b"".join([*out, body_of(self._seen)[0][at:]]).decode("utf-8", "backslashreplace")

    def close(self) -> None:
        self._connection.close()
        self._peers.close()

    def _drain(self) -> None:
        """Take what has arrived."""
        with contextlib.suppress(BlockingIOError):
            while not self._ended:
                data = self._connection.recv(1 << 20, socket.MSG_DONTWAIT)
                self._seen += data
                self._ended = not data

    def _wait_until_rest(self, upstream: socket.socket, what: str | None) -> None:
        deadline = time.monotonic() + REST_SECONDS
        while not self._is_at_rest(upstream):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the gateway is not at rest after {REST_SECONDS} s, before {what}")
            time.sleep(0.0002)

    def _is_at_rest(self, upstream: socket.socket) -> bool:
        before = threads(self._pid)
        if any(state != b"S" for state, *_ in before):
            return False
        self._drain()
        for connection in (upstream, self._connection):
            received, sent = own_counts(connection)
            peer = self._peers.of(connection)
            # The end of a connection counts as a byte received, but not as one sent.
            if peer is not None and (peer.unread or peer.unsent or peer.received < sent or received < peer.sent):
                return False
        return threads(self._pid) == before


def body_of(data: bytes) -> tuple[bytes, bool]:
    """The body of an HTTP/1.1 response as far as it is there, and whether it is whole."""
    head, mark, rest = data.partition(b"\r\n\r\n")
    if not mark:
        return b"", False
    lines = head.lower().split(b"\r\n")
    if b"transfer-encoding: chunked" not in lines:
        lengths = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
        return rest, bool(lengths) and len(rest) >= lengths[0]
    body = b""
    while True:
        size, mark, after = rest.partition(b"\r\n")
        if not mark:
            return body, False
        if not int(size, 16):
            return body, True
        body += after[: int(size, 16)]
        rest = after[int(size, 16) + 2 :]
