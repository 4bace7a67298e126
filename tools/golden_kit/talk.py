"""What cases of several requests are written with: requests that are recorded, streams that are left, conditions."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .captures import Case
from .fixtures import FIXTURES, sse
from .gateway import Gateway, Reply
from .surface import SURFACE
from .upstream import Play

SCRIPT = FIXTURES[0]
MODEL = f"{SCRIPT.provider}:{SCRIPT.model}"
MARK = "until here"
"""The last words of `HALF`."""


class Talk:
    """Requests of one case to one gateway. Each is recorded with its number: what was requested, and the reply."""

    def __init__(self, case: Case, gateway: Gateway, headers: Mapping[str, str] | None = None) -> None:
        self._case = case
        self._gateway = gateway
        self._headers = dict(headers or {})
        self._count = 0

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a request; names of `headers` have `_` for `-`. The JSON of the reply is in `json`."""
        sent = {**self._headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        reply = self._gateway.request(method, path, body, sent)
        self._count += 1
        label = f"{self._count} {method}"
        self._case.add(f"{label}: path", path)
        self._case.add(f"{label}: head", reply.head)
        self._case.add(f"{label}: body", reply.body)
        return reply


def chunks(*deltas: dict[str, Any], finish: str | None = "stop") -> bytes:
    """A streamed response in the form of Chat Completions; without `finish`, only its beginning."""
    frames: list[Any] = [
        {"id": "c-1", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta}]}
        for delta in deltas
    ]
    if finish is None:
        return sse(*frames)
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    end = {"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage}
    return sse(*frames, end, "data: [DONE]")


def half() -> Play:
    """A response of which a thought and the text up to `MARK` come, and then nothing until the gateway leaves."""
    answer = chunks({"reasoning_content": "I think"}, {"content": f"I say, {MARK}"}, finish=None)
    # The upstream stops after two thirds of a body.
    rest = b": " + b"." * (len(answer) // 2 - 4 + len(answer) % 2) + b"\n\n"
    return Play(answer + rest, cut="frames", end="hang")


class Stream:
    """A streamed response over a connection of its own, which can be left."""

    def __init__(
        self, gateway: Gateway, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
        head += [f"Content-Length: {len(data)}", *(f"{name}: {value}" for name, value in (headers or {}).items())]
        self._connection = socket.create_connection(("127.0.0.1", gateway.port), 30)
        self._connection.sendall("\r\n".join([*head, "", ""]).encode() + data)
        SURFACE.add_request(method, path, 200)
        self.seen = b""

    def until(self, *marks: str) -> bytes:
        """Read until each of these stands in what came; all of it, with the framing of its chunks."""
        while not all(mark.encode() in self.seen for mark in marks):
            self._read()
        return self.seen

    def field(self, name: str) -> str:
        """The first value of a field of JSON, as soon as it has come."""
        start = f'"{name}":"'.encode()
        while b'"' not in self.seen.partition(start)[2]:
            self._read()
        return self.seen.partition(start)[2].partition(b'"')[0].decode()

    def _read(self) -> None:
        data = self._connection.recv(65536)
        if not data:
            raise RuntimeError(f"the stream ended: {self.seen[-500:]!r}")
        self.seen += data

    def leave(self) -> None:
        self._connection.close()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30, pause: float = 0.02) -> None:
    """Wait for a condition; an error that names it after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(pause)


def rounded(head: str, names: Iterable[str]) -> str:
    """A reply's head in which these headers have a number of seconds: rounded up to tens, so that time may pass."""
    lines = []
    for line in head.split("\n"):
        name, _, value = line.partition(": ")
        digits = value.removesuffix("s")
        if name in names and digits.replace(".", "", 1).isdigit():
            value = f"{-(-float(digits) // 10) * 10:.0f}" + value[len(digits) :]
        lines.append(f"{name}: {value}" if value else line)
    return "\n".join(lines)
