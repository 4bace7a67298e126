"""The model's server of a golden comparison: it plays what it is given, cut as it is told, and records every request.

How bytes are cut is exact: the next piece is sent only after the gateway has read the last one, which the kernel tells
(`sock_diag(7)`: the bytes in the receive queue of the other end). So `bytes` really is a read of 1 to 7 bytes.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

Cut = Literal["whole", "frames", "bytes"]
"""One read; one frame a read; one to seven bytes a read."""
End = Literal["close", "truncate", "reset", "hang"]

_READ = 32 * 1024
"""What is surely one read: a longer body is several, always the same."""
_SMALL_CUTS = 4 * 1024
"""So much at the beginning and at the end of a long body is cut into small pieces; the middle goes frame by frame."""


class Play(NamedTuple):
    """One response of the upstream."""

    body: bytes
    content_type: str = "text/event-stream"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    cut: Cut = "whole"
    end: End = "close"
    """`truncate`: the connection ends in the middle of the body; `reset`: so, and with RST; `hang`: nothing comes
    after the middle of the body until the gateway leaves."""


class Request(NamedTuple):
    """One request, as it reached the upstream."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes


def pieces(body: bytes, cut: Cut, content_type: str) -> list[bytes]:
    """The body, cut. The same body is cut in the same places each time."""
    if cut == "whole" or not body:
        return [body[at : at + _READ] for at in range(0, len(body), _READ)] or [body]
    if cut == "frames":
        return list(_frames(body, content_type))
    dice = random.Random(len(body))
    if len(body) <= 2 * _SMALL_CUTS:
        return list(_small(body, dice))
    middle = _frames(body[_SMALL_CUTS:-_SMALL_CUTS], "text/event-stream")
    return [*_small(body[:_SMALL_CUTS], dice), *middle, *_small(body[-_SMALL_CUTS:], dice)]


def _small(data: bytes, dice: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = dice.randint(1, 7)
        yield data[at : at + size]
        at += size


def _frames(body: bytes, content_type: str) -> Iterator[bytes]:
    if "eventstream" in content_type:
        at = 0
        while at < len(body):
            size = max(int.from_bytes(body[at : at + 4], "big"), 16)
            yield body[at : at + size]
            at += size
        return
    for frame in re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)" if "event-stream" in content_type else rb"(?<=\n)", body):
        if frame:
            yield frame


class _ReceiveQueue:
    """How many bytes a socket of this machine has not read yet, by Linux's `sock_diag`."""

    def __init__(self) -> None:
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)

    def unread(self, local: tuple[str, int], remote: tuple[str, int]) -> int:
        ends = struct.pack(
            "!HH4s12x4s12x", local[1], remote[1], socket.inet_aton(local[0]), socket.inet_aton(remote[0])
        )
        ask = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends
        ask += struct.pack("=I", 0) + b"\xff" * 8
        self._netlink.send(struct.pack("=IHHII", 16 + len(ask), 20, 1, 1, 0) + ask)
        answer = self._netlink.recv(4096)
        (kind,) = struct.unpack_from("=H", answer, 4)
        return 0 if kind == 2 else int(struct.unpack_from("=I", answer, 16 + 4 + 48 + 4)[0])

    def close(self) -> None:
        self._netlink.close()


class Upstream:
    """The server. The first word of a request's path is the provider; what is played is set for each provider."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._plays: dict[str, list[Play]] = {}
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, provider: str) -> str:
        return f"http://127.0.0.1:{self.port}/{provider}"

    def play(self, provider: str, *plays: Play) -> None:
        """Play these for the provider's next requests; the last one again and again. Forget earlier requests."""
        with self._lock:
            self._plays[provider] = list(plays)
            self._requests.clear()

    def requests(self) -> list[Request]:
        """What came since the last `play`."""
        with self._lock:
            return list(self._requests)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        queue = _ReceiveQueue()
        file = connection.makefile("rb")
        with contextlib.suppress(OSError), contextlib.closing(queue), connection, file:
            while request := _read(file):
                provider = request.line.split(" ")[1].split("/")[1]
                with self._lock:
                    self._requests.append(request)
                    plays = self._plays.get(provider) or [Play(b"{}", "application/json", 404)]
                    play = plays.pop(0) if len(plays) > 1 else plays[0]
                if not self._answer(connection, queue, play):
                    return

    def _answer(self, connection: socket.socket, queue: _ReceiveQueue, play: Play) -> bool:
        """Send the response; False if the connection is over then."""
        body = play.body if play.end == "close" else play.body[: len(play.body) * 2 // 3]
        chunked = play.cut == "frames"
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(play.body)}"
        lines = [f"HTTP/1.1 {play.status} -", f"Content-Type: {play.content_type}", framing]
        lines += [f"{name}: {value}" for name, value in play.headers]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        if play.cut != "whole":
            connection.sendall(head)
            head = b""
        for piece in pieces(body, play.cut, play.content_type):
            self._wait_until_read(connection, queue)
            connection.sendall(head + (b"%x\r\n%b\r\n" % (len(piece), piece) if chunked and piece else piece))
            head = b""
        if play.end == "reset":
            self._wait_until_read(connection, queue)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif play.end == "hang":
            connection.recv(1)
        elif play.end == "close" and chunked:
            connection.sendall(b"0\r\n\r\n")
        return play.end == "close"

    @staticmethod
    def _wait_until_read(connection: socket.socket, queue: _ReceiveQueue) -> None:
        ends = connection.getpeername(), connection.getsockname()
        deadline = time.monotonic() + 5
        while queue.unread(*ends) and time.monotonic() < deadline:
            time.sleep(0)


def _read(file: object) -> Request | None:
    """The next request of a connection; None at its end."""
    readline, read = file.readline, file.read  # type: ignore[attr-defined]
    line = readline().decode("latin-1").strip()
    if not line:
        return None
    headers: list[tuple[str, str]] = []
    while text := readline().decode("latin-1").strip():
        name, _, value = text.partition(":")
        headers.append((name.lower(), value.strip()))
    named = dict(headers)
    if named.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(readline(), 16):
            body += read(size)
            readline()
        readline()
    else:
        body = read(int(named.get("content-length", 0)))
    return Request(line, headers, body)
