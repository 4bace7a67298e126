"""The model's server of a golden comparison: it plays what it is given, cut as is wanted, and records every request.

How bytes are cut is exact: the next piece is sent only after the gateway has read the last one, which the kernel knows
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
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

Cut = Literal["whole", "frames", "bytes"]
"""One read; one frame a read; one to seven bytes a read."""
End = Literal["close", "truncate", "reset", "hang"]

_READ = 32 * 1024
"""What is surely one read: a longer body is several, always the same."""
_SMALL_CUTS = 4 * 1024
"""So much at the beginning and at the end of a long body is cut into small pieces; the middle goes frame by frame."""
READ_SECONDS = 30.0
"""A gateway that has not read the last piece after so long is at fault."""

Watch = Callable[[socket.socket, str | None], None]
"""Called on the upstream's thread with its connection, before something is sent: with its name (`head`, `frame 1`,
`end`); and with None after the last."""


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
    watch: Watch | None = None


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


class Peer(NamedTuple):
    """The other end of a connection within this machine, in bytes."""

    unread: int
    received: int
    """All that ever came, read or not."""
    sent: int
    unsent: int


class Peers:
    """Asks Linux's `sock_diag` about the other ends of connections within this machine."""

    def __init__(self) -> None:
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)

    def of(self, connection: socket.socket) -> Peer | None:
        """The other end of a connection; None if it is closed."""
        try:
            local, remote = connection.getpeername(), connection.getsockname()
        except OSError:
            return None
        ends = struct.pack(
            "!HH4s12x4s12x", local[1], remote[1], socket.inet_aton(local[0]), socket.inet_aton(remote[0])
        )
        ask = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, _WITH_TCP_INFO, 0, 0xFFFFFFFF) + ends
        ask += struct.pack("=I", 0) + b"\xff" * 8
        self._netlink.send(struct.pack("=IHHII", 16 + len(ask), 20, 1, 1, 0) + ask)
        answer = self._netlink.recv(8192)
        length, kind = struct.unpack_from("=IH", answer)
        if kind == _NO_SUCH_SOCKET:
            return None
        at = 16 + 72  # after the headers of the message and of the socket: attributes
        while at + 4 <= length:
            size, name = struct.unpack_from("=HH", answer, at)
            if name == _TCP_INFO_ATTRIBUTE:
                (unread,) = struct.unpack_from("=I", answer, 16 + 4 + 48 + 4)
                return Peer(unread, *_counts(answer[at + 4 : at + size]))
            at += -(-size // 4) * 4
        return None  # it waits for its end to be forgotten

    def close(self) -> None:
        self._netlink.close()


_NO_SUCH_SOCKET = 2
_TCP_INFO_ATTRIBUTE = 2
_WITH_TCP_INFO = 1 << (_TCP_INFO_ATTRIBUTE - 1)


def _counts(info: bytes) -> tuple[int, int, int]:
    """Of Linux's `struct tcp_info`: the bytes received, sent, and not sent yet."""
    (received,) = struct.unpack_from("=Q", info, 128)
    (unsent,) = struct.unpack_from("=I", info, 144)
    sent, again = struct.unpack_from("=QQ", info, 200)
    return received, sent - again, unsent


def own_counts(connection: socket.socket) -> tuple[int, int]:
    """The bytes that this end of a connection has received and sent."""
    received, sent, unsent = _counts(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))
    return received, sent + unsent


class Upstream:
    """The server. The first word of a request's path is the provider; what is played is set for each provider."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._plays: dict[str, list[Play]] = {}
        self._requests: list[Request] = []
        self._faults: list[str] = []
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

    def check(self) -> None:
        """Raise what went wrong since the last call: a response that could not be played as it was meant."""
        with self._lock:
            faults, self._faults = self._faults, []
        if faults:
            raise RuntimeError("; ".join(faults))

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
        peers = Peers()
        file = connection.makefile("rb")
        with contextlib.suppress(OSError), contextlib.closing(peers), connection, file:
            while request := _read(file):
                provider = request.line.split(" ")[1].split("/")[1]
                with self._lock:
                    self._requests.append(request)
                    plays = self._plays.get(provider) or [Play(b"{}", "application/json", 404)]
                    play = plays.pop(0) if len(plays) > 1 else plays[0]
                if not self._played(connection, peers, play):
                    return

    def _played(self, connection: socket.socket, peers: Peers, play: Play) -> bool:
        """Send the response; False if the connection is over then."""
        try:
            return self._answer(connection, peers, play)
        except _NotReadError as error:
            with self._lock:
                self._faults.append(str(error))
            return False
        finally:
            if play.watch is not None:
                play.watch(connection, None)

    def _answer(self, connection: socket.socket, peers: Peers, play: Play) -> bool:
        def send(data: bytes, what: str) -> None:
            """Send what comes next, when what came before has been read."""
            _wait_until_read(connection, peers)
            if play.watch is not None:
                play.watch(connection, what)
            connection.sendall(data)

        body = play.body if play.end == "close" else play.body[: len(play.body) * 2 // 3]
        chunked = play.cut == "frames"
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(play.body)}"
        lines = [f"HTTP/1.1 {play.status} -", f"Content-Type: {play.content_type}", framing]
        lines += [f"{name}: {value}" for name, value in play.headers]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        if play.cut != "whole":
            send(head, "head")
            head = b""
        for n, piece in enumerate(pieces(body, play.cut, play.content_type), 1):
            send(head + (b"%x\r\n%b\r\n" % (len(piece), piece) if chunked and piece else piece), f"frame {n}")
            head = b""
        if play.end == "reset":
            _wait_until_read(connection, peers)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif play.end == "hang":
            connection.recv(1)
        elif play.end == "close" and chunked:
            send(b"0\r\n\r\n", "end")
        return play.end == "close"


class _NotReadError(Exception):
    """The gateway did not read what was sent."""


def _wait_until_read(connection: socket.socket, peers: Peers, seconds: float | None = None) -> None:
    deadline = time.monotonic() + (READ_SECONDS if seconds is None else seconds)
    while (peer := peers.of(connection)) is not None and peer.unread:
        if time.monotonic() > deadline:
            raise _NotReadError(f"the gateway left {peer.unread} bytes of a response unread")
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
